// Token by token, for the linear and mlp inner models: a block processes one head's tokens sequentially, in fp32. The
// state and its sums stay in device memory; reading and writing them once or twice per step is the cost. No parallelism
// beyond heads.
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 256;

// One layer of the inner model, [inputs, outputs], and its sums since the mini-batch's start.
struct Layer {
    float *weight, *bias, *weight_sum, *bias_sum;
    int inputs, outputs;
    __device__ Layer of(std::int64_t head) const {
        const std::int64_t matrix = head * inputs * outputs, row = head * outputs;
        return {weight + matrix, bias + row, weight_sum + matrix, bias_sum + row, inputs, outputs};
    }
};

template <class T>
struct DecodeParameters {
    TttRows<T> q, k, v, y;
    const float *step_size, *token_scale, *norm_weight, *norm_bias;
    Layer first, second;  // the second is mlp's only
    std::int64_t length, position;
    int heads, width, hidden, mini_batch;
    bool mlp;
};

template <class Body>
__device__ inline void for_each(int count, Body&& body) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) body(i);
}

// z = x W + c.
__device__ inline void apply(float* z, const float* x, const Layer& layer) {
    for_each(layer.outputs, [&](int o) {
        float sum = layer.bias[o];
        for (int i = 0; i < layer.inputs; ++i)
            sum = fmaf(x[i], layer.weight[static_cast<std::int64_t>(i) * layer.outputs + o], sum);
        z[o] = sum;
    });
    __syncthreads();
}

// A += λ kᵀ g, a += λ g; then z = q (W - τ A) + c - τ a.
__device__ inline void step(float* z, const float* query, const float* key, const float* gradient, const Layer& layer,
                            float step_size, float token_scale) {
    for_each(layer.outputs, [&](int o) {
        const float descent = step_size * gradient[o];
        layer.bias_sum[o] += descent;
        float sum = layer.bias[o] - token_scale * layer.bias_sum[o];
        for (int i = 0; i < layer.inputs; ++i) {
            const std::int64_t at = static_cast<std::int64_t>(i) * layer.outputs + o;
            const float total = fmaf(key[i], descent, layer.weight_sum[at]);
            layer.weight_sum[at] = total;
            sum = fmaf(query[i], layer.weight[at] - token_scale * total, sum);
        }
        z[o] = sum;
    });
    __syncthreads();
}

// Ends a mini-batch: W -= τ A, A = 0. Each thread changes what it reads in apply and step.
__device__ inline void commit(const Layer& layer, float token_scale) {
    for_each(layer.outputs, [&](int o) {
        layer.bias[o] -= token_scale * layer.bias_sum[o];
        layer.bias_sum[o] = 0;
        for (int i = 0; i < layer.inputs; ++i) {
            const std::int64_t at = static_cast<std::int64_t>(i) * layer.outputs + o;
            layer.weight[at] -= token_scale * layer.weight_sum[at];
            layer.weight_sum[at] = 0;
        }
    });
    __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(threads, 2) ttt_decode_kernel(DecodeParameters<T> p) {
    const int f = p.width, g = p.hidden, lane = static_cast<int>(threadIdx.x) % warp_width;
    const int warp = static_cast<int>(threadIdx.x) / warp_width;
    const std::int64_t head = blockIdx.x;
    float* const query = shared_memory<float>();
    float* const key = query + f;
    float* const difference = key + f;  // T, then D
    float* const normal = difference + f;
    float* const gradient = normal + f;
    float* const output = gradient + f;
    float* const hidden = output + f;  // X2; from here on mlp only
    float* const slope = hidden + g;
    float* const hidden_gradient = slope + g;
    float* const hidden_query = hidden_gradient + g;
    const Layer first = p.first.of(head), second = p.mlp ? p.second.of(head) : p.second;
    const float *norm_weight = p.norm_weight + head * f, *norm_bias = p.norm_bias + head * f;

    for (std::int64_t token = 0; token < p.length; ++token) {
        const std::int64_t index = (p.position + token) % p.mini_batch;
        const auto slice = [&](const TttRows<T>& rows) { return rows.first + token * rows.stride + head * f; };
        const T *const q = slice(p.q), *const k = slice(p.k), *const v = slice(p.v);
        T* const y = slice(p.y);
        const float step_size = p.step_size[token * p.heads + head], token_scale = p.token_scale[index];
        for_each(f, [&](int i) {
            query[i] = to_float(q[i]);
            key[i] = to_float(k[i]);
            difference[i] = to_float(v[i]) - key[i];
        });
        __syncthreads();

        if (p.mlp) {
            apply(slope, key, first);
            for_each(g, [&](int i) {
                const Gelu at_input = gelu_at(slope[i]);
                hidden[i] = at_input.value;
                slope[i] = at_input.slope;
            });
            __syncthreads();
            apply(normal, hidden, second);
        } else {
            apply(normal, key, first);
        }
        if (warp == 0) {
            const float inverse = normalise_row(normal, f, lane);
            static_cast<void>(loss_row(normal, inverse, difference, gradient, norm_weight, norm_bias, f, lane));
        }
        __syncthreads();

        if (p.mlp) {
            for (int i = warp; i < g; i += threads / warp_width) {
                float sum = 0;
                for (int o = lane; o < f; o += warp_width)
                    sum = fmaf(gradient[o], second.weight[static_cast<std::int64_t>(i) * f + o], sum);
                sum = warp_sum(sum);
                if (lane == 0) hidden_gradient[i] = sum * slope[i];
            }
            __syncthreads();
            step(hidden_query, query, key, hidden_gradient, first, step_size, token_scale);
            for_each(g, [&](int i) { hidden_query[i] = gelu_at(hidden_query[i]).value; });
            __syncthreads();
            step(output, hidden_query, hidden, gradient, second, step_size, token_scale);
        } else {
            step(output, query, key, gradient, first, step_size, token_scale);
        }
        if (warp == 0) {
            static_cast<void>(normalise_row(output, f, lane));
            for (int i = lane; i < f; i += warp_width)
                y[i] = from_float<T>(query[i] + (norm_weight[i] * output[i] + norm_bias[i]));
        }
        if (index + 1 == p.mini_batch) {
            commit(first, token_scale);
            if (p.mlp) commit(second, token_scale);
        }
        __syncthreads();
    }
}

}  // namespace

void ttt_decode(const TttArguments& arguments, Type type, const TttState& state, std::int64_t position) {
    const TttShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        DecodeParameters<T> p{};
        p.q = ttt_rows<T>(arguments.q);
        p.k = ttt_rows<T>(arguments.k);
        p.v = ttt_rows<T>(arguments.v);
        p.y = ttt_rows<T>(arguments.y);
        p.step_size = arguments.step_size;
        p.token_scale = arguments.token_scale;
        p.norm_weight = arguments.inner.norm_weight.fp32();
        p.norm_bias = arguments.inner.norm_bias.fp32();
        p.length = shape.length;
        p.position = position;
        p.heads = static_cast<int>(shape.heads);
        p.width = static_cast<int>(shape.head_width);
        p.hidden = static_cast<int>(shape.hidden());
        p.mini_batch = static_cast<int>(shape.mini_batch);
        p.mlp = shape.mlp;
        p.first = {state.weight1.fp32(),
                   state.bias1.fp32(),
                   state.weight1_sum.fp32(),
                   state.bias1_sum.fp32(),
                   p.width,
                   p.hidden};
        if (shape.mlp)
            p.second = {state.weight2.fp32(),   state.bias2.fp32(), state.weight2_sum.fp32(),
                        state.bias2_sum.fp32(), p.hidden,           p.width};
        const std::size_t floats = static_cast<std::size_t>(6 * p.width + (shape.mlp ? 4 * p.hidden : 0));
        launch(
            {"ttt_decode", dim3(static_cast<unsigned>(shape.heads)), threads, floats * sizeof(float), arguments.stream},
            ttt_decode_kernel<T>, p);
    });
}

}  // namespace lockstep::kernels::cuda
