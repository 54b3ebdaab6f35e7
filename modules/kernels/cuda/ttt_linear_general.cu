// TTT-Linear for every type, width and mini-batch, in plain fp32: the cases that the tiled kernels do not support. A
// block works on one head of one sequence; all matrices are in its part of device memory, mostly cached in L1 and L2.
#include <algorithm>

#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_linear.hpp"
#include "kernels/cuda/ttt_mlp_general.hpp"
#include "kernels/cuda/ttt_pieces.hpp"

namespace lockstep::kernels::cuda {
namespace {

using general::for_elements;
using general::for_rows;
using general::Matrix;
using general::product;
using general::threads;

template <class T>
struct GeneralParameters {
    TttRows<T> q, k, v, dy, y, dq, dk, dv;
    const float *step_size, *token_scale, *weight, *bias, *norm_weight, *norm_bias;
    float* saved;  // [pairs, kept states, state_floats]; forward: may be null
    float* dstep_size;
    float* parts;  // [pairs] as TttPart
    TttPart part;
    std::int64_t start_models;      // `weight` and `bias`: of pair mod start_models
    TttModels final_state, dfinal;  // may be null
    TttPieces pieces;
    float* work;  // [blocks, work_count]
    std::int64_t work_count, state_floats, pairs, mini_batches, interval;
    int heads, width, mini_batch;
    bool summed;  // whether a pair's pieces each give a gradient of its model
};

// A block's data of one mini-batch of r tokens: [r, f] matrices have rows of f, [r, r] of b.
struct Arrays {
    float *key, *normalised, *difference, *gradient, *inverse, *projection;  // keys' side; X̂, D, G, 1/σ, ⟨U X̂⟩
    float *query, *read, *read_inverse, *score, *factor;                     // queries' side; Z̄ or its X̂, S, P
    float *scale, *step, *last;                                              // τ, λ, e
    float *dout, *dread, *dgradient, *ddifference, *dquery, *dkey, *dfactor, *dlast;
    float* dstate;  // of a piece, where a pair has several
    float* states;  // W [f, f], c [f]: one, or in backward a group's
};

__host__ __device__ inline std::int64_t place(Arrays& a, float* memory, std::int64_t width, std::int64_t mini_batch,
                                              std::int64_t states, bool backward, bool summed) {
    std::int64_t used = 0;
    const auto take = [&](float*& to, std::int64_t count) {
        to = memory ? memory + used : nullptr;
        used += (count + 31) / 32 * 32;
    };
    const std::int64_t tile = mini_batch * width, square = mini_batch * mini_batch;
    for (float** to : {&a.key, &a.normalised, &a.difference, &a.gradient, &a.query, &a.read}) take(*to, tile);
    for (float** to : {&a.inverse, &a.projection, &a.read_inverse, &a.scale, &a.step, &a.last}) take(*to, mini_batch);
    take(a.score, square);
    take(a.factor, square);
    if (backward) {
        for (float** to : {&a.dout, &a.dread, &a.dgradient, &a.ddifference, &a.dquery, &a.dkey}) take(*to, tile);
        take(a.dfactor, square);
        take(a.dlast, mini_batch);
        if (summed) take(a.dstate, (width + 1) * width);
    }
    take(a.states, states * (width + 1) * width);
    return used;
}

// One head of one sequence.
template <class T>
struct General {
    const GeneralParameters<T>& p;
    const Arrays& a;
    int f, b, tokens = 0;
    TttPiece piece{};
    std::int64_t pair, head, token = 0, step_row = 0;  // the first row of a mini-batch, and its element in step_size
    const float *gamma, *beta;

    __device__ General(const GeneralParameters<T>& parameters, const Arrays& arrays, std::int64_t pair_number)
        : p(parameters),
          a(arrays),
          f(parameters.width),
          b(parameters.mini_batch),
          pair(pair_number),
          head(pair_number % parameters.heads),
          gamma(parameters.norm_weight + head * f),
          beta(parameters.norm_bias + head * f) {}

    __device__ Matrix rows(float* data) const { return {data, f, 1}; }
    __device__ Matrix square(float* data) const { return {data, b, 1}; }
    // Element i of the mini-batch's [tokens, f] in a tensor.
    __device__ T& at(const TttRows<T>& rows, int i) const {
        return rows.first[(token + i / f) * rows.stride + head * f + i % f];
    }
    __device__ std::int64_t state_count() const { return (static_cast<std::int64_t>(f) + 1) * f; }
    __device__ float* kept(std::int64_t number) const {
        const std::int64_t place = ttt_saved_before(piece, static_cast<int>(p.interval) * b) + number / p.interval - 1;
        return p.saved + (pair * ((p.mini_batches - 1) / p.interval) + place) * p.state_floats;
    }
    __device__ std::int64_t mini_batches() const { return (piece.length + b - 1) / b; }

    __device__ void load(std::int64_t number) {
        const std::int64_t start = number * b, rest = piece.length - start;
        token = pair / p.heads * p.pieces.length + piece.begin + start;
        tokens = static_cast<int>(rest < b ? rest : b);
        step_row = token * p.heads + head;
        for_elements(tokens * f, [&](int i) {
            a.query[i] = to_float(at(p.q, i));
            a.key[i] = to_float(at(p.k, i));
            a.difference[i] = to_float(at(p.v, i)) - a.key[i];
        });
        for_elements(tokens, [&](int i) {
            a.scale[i] = p.token_scale[i];
            a.step[i] = p.step_size[step_row + static_cast<std::int64_t>(i) * p.heads];
            a.last[i] = p.token_scale[tokens - 1] * a.step[i];
        });
        __syncthreads();
    }
    // One of many models in the tensors' layout.
    __device__ void load_model(float* state, const float* weight, const float* bias, std::int64_t model) const {
        for_elements(f * f, [&](int i) { state[i] = weight[model * f * f + i]; });
        for_elements(f, [&](int i) { state[f * f + i] = bias[model * f + i]; });
        __syncthreads();
    }
    __device__ void load_start() const {
        if (piece.carried) return load_model(a.states, p.pieces.initial.weight1, p.pieces.initial.bias1, pair);
        load_model(a.states, p.weight, p.bias, pair % p.start_models);
    }

    // G and its inputs.
    __device__ void key_side(float* state) const {
        const float* const bias = state + f * f;
        product(tokens, f, f, rows(a.key), rows(state),
                [&](int i, int j, float sum) { a.normalised[i * f + j] = sum + bias[j]; });
        __syncthreads();
        for_rows(tokens, [&](int i, int lane) {
            float* const normalised = a.normalised + i * f;
            const float inverse = normalise_row(normalised, f, lane);
            const float projection =
                loss_row(normalised, inverse, a.difference + i * f, a.gradient + i * f, gamma, beta, f, lane);
            if (lane == 0) {
                a.inverse[i] = inverse;
                a.projection[i] = projection;
            }
        });
        __syncthreads();
    }
    // X̂ and 1/σ of Z̄.
    __device__ void query_side(float* state) const {
        const float* const bias = state + f * f;
        product(tokens, tokens, f, rows(a.query), rows(a.key).transposed(), [&](int i, int j, float sum) {
            a.score[i * b + j] = sum + 1;
            a.factor[i * b + j] = j <= i ? a.scale[i] * a.step[j] * (sum + 1) : 0.0f;
        });
        product(tokens, f, f, rows(a.query), rows(state),
                [&](int i, int j, float sum) { a.read[i * f + j] = sum + bias[j]; });
        __syncthreads();
        product(tokens, f, tokens, square(a.factor), rows(a.gradient),
                [&](int i, int j, float sum) { a.read[i * f + j] -= sum; });
        __syncthreads();
        for_rows(tokens, [&](int i, int lane) {
            const float inverse = normalise_row(a.read + i * f, f, lane);
            if (lane == 0) a.read_inverse[i] = inverse;
        });
        __syncthreads();
    }
    // The state after the mini-batch; `to` may be `from`.
    __device__ void update(float* to, const float* from) const {
        for_elements((f + 1) * f, [&](int index) {
            const int i = index / f, j = index % f;  // the bias is the row after the weights, for an input of 1
            float sum = 0;
            for (int t = 0; t < tokens; ++t)
                sum = fmaf(a.last[t] * (i < f ? a.key[t * f + i] : 1.0f), a.gradient[t * f + j], sum);
            to[index] = from[index] - sum;
        });
        __syncthreads();
    }

    __device__ void forward() {
        for (int begin = 0; begin < p.pieces.length; begin += piece.length) {
            piece = p.pieces.from(pair / p.heads, begin);
            forward_piece();
        }
        if (!p.final_state.weight1) return;
        // By the threads that load the next pair's model.
        for_elements(f * f, [&](int i) { p.final_state.weight1[pair * f * f + i] = a.states[i]; });
        for_elements(f, [&](int i) { p.final_state.bias1[pair * f + i] = a.states[f * f + i]; });
    }

    __device__ void forward_piece() {
        load_start();
        for (std::int64_t number = 0; number < mini_batches(); ++number) {
            if (p.saved && number > 0 && number % p.interval == 0) {
                float* const to = kept(number);
                for_elements((f + 1) * f, [&](int i) { to[i] = a.states[i]; });
            }
            load(number);
            key_side(a.states);
            query_side(a.states);
            for_elements(tokens * f, [&](int i) {
                at(p.y, i) = from_float<T>(a.query[i] + (gamma[i % f] * a.read[i] + beta[i % f]));
            });
            update(a.states, a.states);
        }
    }

    __device__ void backward() {
        float* const part = p.parts + pair * p.part.count;
        float* const dstate = p.summed ? a.dstate : part + p.part.weight1;
        for_elements(static_cast<int>(p.part.count), [&](int i) { part[i] = 0; });
        if (p.summed) {
            for_elements((f + 1) * f, [&](int i) { dstate[i] = 0; });
            hand_over(p.pieces.dinitial);
        }
        if (p.dfinal.weight1) {
            __syncthreads();
            load_model(dstate, p.dfinal.weight1, p.dfinal.bias1, pair);
        }
        for (int end = p.pieces.length; end > 0; end = piece.begin) {
            piece = p.pieces.before(pair / p.heads, end);
            backward_piece(dstate, part);
            if (!p.summed) continue;
            if (piece.carried)
                hand_over(p.pieces.dinitial);
            else
                for_elements((f + 1) * f, [&](int i) { part[p.part.weight1 + i] += dstate[i]; });
            for_elements((f + 1) * f, [&](int i) { dstate[i] = 0; });
            __syncthreads();
        }
    }

    // The gradient of a piece's model to one of many in the tensors' layout, by the threads that make it 0.
    __device__ void hand_over(const TttModels& models) const {
        if (!models.weight1) return;
        for_elements((f + 1) * f, [&](int i) {
            float* const to = i < f * f ? models.weight1 + pair * f * f + i : models.bias1 + pair * f + i - f * f;
            *to = a.dstate[i];
        });
    }

    __device__ void backward_piece(float* dstate, float* part) {
        for (std::int64_t group = (mini_batches() - 1) / p.interval; group >= 0; --group) {
            const std::int64_t begin = group * p.interval, after = begin + p.interval;
            const std::int64_t end = after < mini_batches() ? after : mini_batches();
            if (group == 0) {
                load_start();
            } else {
                const float* const from = kept(begin);
                for_elements((f + 1) * f, [&](int i) { a.states[i] = from[i]; });
                __syncthreads();
            }
            for (std::int64_t number = begin; number + 1 < end; ++number) {
                float* const state = a.states + (number - begin) * state_count();
                load(number);
                key_side(state);
                update(state + state_count(), state);
            }
            for (std::int64_t number = end - 1; number >= begin; --number) {
                float* const state = a.states + (number - begin) * state_count();
                load(number);
                key_side(state);
                query_side(state);
                mini_batch_backward(state, dstate, part);
            }
        }
    }

    // dweight holds dW', dc' and becomes dW, dc.
    __device__ void mini_batch_backward(float* state, float* dweight, float* part) const {
        float* const dbias = dweight + f * f;
        for_elements(tokens * f, [&](int i) { a.dout[i] = to_float(at(p.dy, i)); });
        __syncthreads();
        for_rows(tokens, [&](int i, int lane) {
            norm_backward_row(a.dread + i * f, a.dout + i * f, a.read + i * f, a.read_inverse[i], gamma, f, lane);
        });
        add_norm(part, a.dout, [&](int i) { return a.dout[i] * a.read[i]; });
        __syncthreads();

        product(tokens, tokens, f, rows(a.dread), rows(a.gradient).transposed(),
                [&](int i, int j, float sum) { a.dfactor[i * b + j] = j <= i ? -sum : 0.0f; });
        product(tokens, f, f, rows(a.dread), rows(state).transposed(),
                [&](int i, int j, float sum) { a.dquery[i * f + j] = a.dout[i * f + j] + sum; });
        product(tokens, f, f, rows(a.gradient), rows(dweight).transposed(),
                [&](int i, int j, float sum) { a.dkey[i * f + j] = -a.last[i] * sum; });
        product(tokens, f, f, rows(a.key), rows(dweight),
                [&](int i, int j, float sum) { a.dgradient[i * f + j] = sum + dbias[j]; });
        __syncthreads();
        for_rows(tokens, [&](int i, int lane) {
            float sum = 0;
            for (int j = lane; j < f; j += warp_width) {
                sum = fmaf(a.gradient[i * f + j], a.dgradient[i * f + j], sum);
                a.dgradient[i * f + j] *= -a.last[i];
            }
            sum = warp_sum(sum);
            if (lane == 0) a.dlast[i] = -sum;
        });
        // dE replaces S, dS replaces dP.
        for_elements(tokens * tokens, [&](int index) {
            const int i = index / tokens, j = index % tokens, at = i * b + j;
            const float dfactor = a.dfactor[at];
            a.score[at] *= dfactor;
            a.dfactor[at] = dfactor * a.scale[i] * a.step[j];
        });
        __syncthreads();
        product(tokens, f, tokens, square(a.dfactor), rows(a.key),
                [&](int i, int j, float sum) { a.dquery[i * f + j] += sum; });
        product(tokens, f, tokens, square(a.dfactor).transposed(), rows(a.query),
                [&](int i, int j, float sum) { a.dkey[i * f + j] += sum; });
        product(tokens, f, tokens, square(a.factor).transposed(), rows(a.dread),
                [&](int i, int j, float sum) { a.dgradient[i * f + j] -= sum; });
        __syncthreads();
        for_rows(tokens, [&](int i, int lane) {
            loss_backward_row(a.dgradient + i * f, a.ddifference + i * f, a.normalised + i * f, a.difference + i * f,
                              a.gradient + i * f, a.inverse[i], a.projection[i], gamma, f, lane);
        });
        __syncthreads();
        add_norm(part, a.ddifference, [&](int i) { return a.normalised[i]; });
        product(tokens, f, f, rows(a.dgradient), rows(state).transposed(), [&](int i, int j, float sum) {
            a.dkey[i * f + j] += sum + a.ddifference[i * f + j];  // the target is V - K
        });
        for_elements((f + 1) * f, [&](int index) {
            const int i = index / f, j = index % f;
            float sum = 0;
            for (int t = 0; t < tokens; ++t) {
                sum = fmaf(i < f ? a.query[t * f + i] : 1.0f, a.dread[t * f + j], sum);
                sum = fmaf(i < f ? a.key[t * f + i] : 1.0f, a.dgradient[t * f + j], sum);
            }
            dweight[index] += sum;  // dc follows dW
        });
        for_elements(tokens, [&](int i) {
            float step = a.scale[tokens - 1] * a.dlast[i], scale = 0;
            for (int t = 0; t < tokens; ++t) {
                step = fmaf(a.scale[t], a.score[t * b + i], step);
                scale += a.step[t] * (a.score[i * b + t] + (i == tokens - 1 ? a.dlast[t] : 0.0f));
            }
            p.dstep_size[step_row + static_cast<std::int64_t>(i) * p.heads] = step;
            part[p.part.token_scale + i] += scale;
        });
        __syncthreads();
        for_elements(tokens * f, [&](int i) {
            at(p.dq, i) = from_float<T>(a.dquery[i]);
            at(p.dk, i) = from_float<T>(a.dkey[i]);
            at(p.dv, i) = from_float<T>(-a.ddifference[i]);
        });
        __syncthreads();
    }

    // dγ += Σ over tokens of weight(index), dβ += Σ of bias.
    template <class Weight>
    __device__ void add_norm(float* part, const float* bias, Weight&& weight) const {
        for_elements(f, [&](int j) {
            float weight_sum = 0, bias_sum = 0;
            for (int t = 0; t < tokens; ++t) {
                weight_sum += weight(t * f + j);
                bias_sum += bias[t * f + j];
            }
            part[p.part.norm_weight + j] += weight_sum;
            part[p.part.norm_bias + j] += bias_sum;
        });
    }
};

// The block's arrays. Their addresses are in shared memory: they would take a third of the registers.
template <class T>
__device__ inline const Arrays& block_arrays(const GeneralParameters<T>& p, bool backward) {
    Arrays& arrays = *shared_memory<Arrays>();
    if (threadIdx.x == 0)
        place(arrays, p.work + static_cast<std::int64_t>(blockIdx.x) * p.work_count, p.width, p.mini_batch,
              backward ? p.interval : 1, backward, p.summed);
    __syncthreads();
    return arrays;
}

template <class T>
__global__ void __launch_bounds__(threads, 2) ttt_linear_forward_general_kernel(GeneralParameters<T> p) {
    const Arrays& arrays = block_arrays(p, false);
    for (std::int64_t pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) General<T>(p, arrays, pair).forward();
}
template <class T>
__global__ void __launch_bounds__(threads, 2) ttt_linear_backward_general_kernel(GeneralParameters<T> p) {
    const Arrays& arrays = block_arrays(p, true);
    for (std::int64_t pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) General<T>(p, arrays, pair).backward();
}

// Only as many blocks as run concurrently, to limit work memory.
std::int64_t block_count(const TttArguments& arguments) {
    return std::min<std::int64_t>(arguments.pairs(), 2 * arguments.multiprocessors);
}

template <class T>
GeneralParameters<T> parameters_of(const TttArguments& arguments, bool backward) {
    const TttShape& shape = arguments.shape;
    GeneralParameters<T> p{};
    p.q = ttt_rows<T>(arguments.q);
    p.k = ttt_rows<T>(arguments.k);
    p.v = ttt_rows<T>(arguments.v);
    p.step_size = arguments.step_size;
    p.token_scale = arguments.token_scale;
    p.weight = arguments.start().weight1.fp32();
    p.bias = arguments.start().bias1.fp32();
    p.start_models = arguments.start_models();
    p.final_state = TttModels(arguments.final_state);
    p.dfinal = TttModels(arguments.dfinal);
    p.norm_weight = arguments.inner.norm_weight.fp32();
    p.norm_bias = arguments.inner.norm_bias.fp32();
    p.saved = arguments.saved;
    p.part = TttPart(shape);
    p.state_floats = ttt_linear_kept_floats(shape.head_width);
    p.pairs = arguments.pairs();
    p.pieces = TttPieces(arguments);
    p.summed = backward && !shape.documents.joined();
    p.mini_batches = arguments.mini_batches();
    p.interval = ttt_interval(p.mini_batches);
    p.heads = static_cast<int>(shape.heads);
    p.width = static_cast<int>(shape.head_width);
    p.mini_batch = static_cast<int>(shape.mini_batch);
    Arrays arrays;
    p.work_count = place(arrays, nullptr, p.width, p.mini_batch, backward ? p.interval : 1, backward, p.summed);
    const std::int64_t parts = backward ? (p.pairs * p.part.count + 63) / 64 * 64 : 0;
    const std::int64_t floats = parts + block_count(arguments) * p.work_count;
    p.parts = static_cast<float*>(arguments.scratch(static_cast<std::size_t>(floats) * sizeof(float)));
    p.work = p.parts + parts;
    return p;
}

}  // namespace

void ttt_linear_forward_general(const TttArguments& arguments, Type type) {
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        GeneralParameters<T> p = parameters_of<T>(arguments, false);
        p.y = ttt_rows<T>(arguments.y);
        launch({"ttt_linear_forward_general", dim3(static_cast<unsigned>(block_count(arguments))), threads,
                sizeof(Arrays), arguments.stream},
               ttt_linear_forward_general_kernel<T>, p);
    });
}

void ttt_linear_backward_general(const TttArguments& arguments, Type type) {
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        GeneralParameters<T> p = parameters_of<T>(arguments, true);
        p.dy = ttt_rows<T>(arguments.dy);
        p.dq = ttt_rows<T>(arguments.dq);
        p.dk = ttt_rows<T>(arguments.dk);
        p.dv = ttt_rows<T>(arguments.dv);
        p.dstep_size = arguments.dstep_size;
        launch({"ttt_linear_backward_general", dim3(static_cast<unsigned>(block_count(arguments))), threads,
                sizeof(Arrays), arguments.stream},
               ttt_linear_backward_general_kernel<T>, p);
        ttt_add_parts(arguments, p.parts);
    });
}

}  // namespace lockstep::kernels::cuda
