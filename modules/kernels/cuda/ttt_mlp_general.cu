// TTT-MLP in plain fp32 for every type, width and mini-batch: its two kernels.
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_general.hpp"

namespace lockstep::kernels::cuda {
namespace general {
namespace {

// Calls body(element of a state, the same of one of the models), always on the same thread for an element.
template <class Body>
__device__ void for_model(float* state, const TttModels& models, std::int64_t model, const TttMlpSizes& sizes,
                          Body&& body) {
    const int f = sizes.width, g = sizes.hidden;
    const auto array = [&](float* of_models, int count) {
        for_elements(count, [&](int i) { body(state[i], of_models[model * count + i]); });
        state += count;
    };
    array(models.weight1, f * g);
    array(models.bias1, g);
    array(models.weight2, g * f);
    array(models.bias2, f);
}
__device__ void load_model(float* state, const TttModels& models, std::int64_t model, const TttMlpSizes& sizes) {
    for_model(state, models, model, sizes, [](float& value, const float& place) { value = place; });
}
__device__ void store_model(float* state, const TttModels& models, std::int64_t model, const TttMlpSizes& sizes) {
    for_model(state, models, model, sizes, [](const float& value, float& place) { place = value; });
}

// What a piece of a pair starts from.
template <class T>
__device__ void load_start(float* state, const TttMlpTask<T>& task, const TttPiece& piece, std::int64_t pair) {
    load_model(state, ttt_choose(piece.carried, task.pieces.initial, task.start),
               piece.carried ? pair : pair % task.start_models, task.sizes);
}
// Where the state before a mini-batch is kept.
template <class T>
__device__ float* kept_state(const TttMlpTask<T>& task, const TttPiece& piece, std::int64_t pair, std::int64_t number) {
    const TttMlpSizes& sizes = task.sizes;
    const std::int64_t place = ttt_saved_before(piece, sizes.group * sizes.mini_batch) + number / sizes.group - 1;
    return task.saved + (pair * sizes.kept_states() + place) * sizes.kept_count();
}

template <class T>
__device__ void forward_piece(const TttMlpTask<T>& task, const Arrays& a, const TttPiece& piece, std::int64_t pair) {
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width;
    const std::int64_t count = sizes.state_count(), head = pair % sizes.heads;
    const State state = state_at(a.states, sizes);
    const float *norm_weight = task.norm_weight + head * f, *norm_bias = task.norm_bias + head * f;
    __syncthreads();
    load_start(a.states, task, piece, pair);
    for (std::int64_t number = 0; number * sizes.mini_batch < piece.length; ++number) {
        const Place place = place_of(sizes, piece, pair, number);
        if (task.saved && number > 0 && number % sizes.group == 0) {
            float* kept = kept_state(task, piece, pair, number);
            for_elements(static_cast<int>(count), [&](int i) { kept[i] = a.states[i]; });
        }
        load_keys(a, task.k, task.v, task.step_size, task.token_scale, place, sizes);
        key_side(a, state, norm_weight, norm_bias, place.tokens, sizes);
        query_side(a, state, task.q, place, sizes);
        for_elements(place.tokens * f, [&](int i) {
            const int column = i % f;
            a.read2[i] = a.query[i] + (norm_weight[column] * a.read2[i] + norm_bias[column]);
        });
        store_rows(task.y, a.read2, place, sizes);
        update(a, state, state, place.tokens, sizes);
    }
}

template <class T>
__global__ void __launch_bounds__(threads) forward(TttMlpTask<T> task) {
    const TttMlpSizes& sizes = task.sizes;
    Arrays a;
    place(a, task.work + blockIdx.x * task.work_count, sizes, false, false);
    for (std::int64_t pair = blockIdx.x; pair < sizes.pairs(); pair += gridDim.x) {
        TttPiece piece;
        for (int begin = 0; begin < task.pieces.length; begin += piece.length) {
            piece = task.pieces.from(pair / sizes.heads, begin);
            forward_piece(task, a, piece, pair);
        }
        if (task.final_state.weight1) store_model(a.states, task.final_state, pair, sizes);
    }
}

// Σ over features of x ⊙ r plus g · dc': minus what the last row of E receives of one layer.
__device__ float last_term(const float* x, const float* r, int inputs, const float* g, const float* dbias, int outputs,
                           int lane) {
    float sum = 0;
    for (int j = lane; j < inputs; j += warp_width) sum += x[j] * r[j];
    for (int j = lane; j < outputs; j += warp_width) sum += g[j] * dbias[j];
    return warp_sum(sum);
}

// dP = -M ⊙ (dZ̄ Gᵀ); dE (+)= dP ⊙ S; `dfactor` receives dS = dP ⊙ E.
__device__ void factor_backward(const Arrays& a, float* dfactor, float* dread, float* gradient, const float* score,
                                int width, int tokens, int b, bool add) {
    product(tokens, tokens, width, {dread, width, 1}, Matrix{gradient, width, 1}.transposed(),
            [&](int i, int j, float sum) {
                const float d = j <= i ? -sum : 0.0f;
                a.dscale[i * b + j] = (add ? a.dscale[i * b + j] : 0.0f) + d * score[i * b + j];
                dfactor[i * b + j] = d * a.scale[i] * a.step[j];
            });
}

// weight += Σ xᵀ y over the pairs (x, y) of [tokens, rows] and [tokens, columns]; bias += column sums of the second.
__device__ void add_outer(const Matrix& weight, float* bias, const float* x0, const float* y0, const float* x1,
                          const float* y1, const float* x2, const float* y2, int rows, int columns, int tokens) {
    for_elements(rows * columns, [&](int index) {
        const int i = index / columns, j = index % columns;
        float sum = 0;
        for (int t = 0; t < tokens; ++t) {
            const int x = t * rows + i, y = t * columns + j;
            sum = fmaf(x0[x], y0[y], fmaf(x1[x], y1[y], sum));
            if (x2) sum = fmaf(x2[x], y2[y], sum);
        }
        weight(i, j) += sum;
    });
    for_elements(columns, [&](int j) {
        float sum = 0;
        for (int t = 0; t < tokens; ++t) sum += y0[t * columns + j] + y1[t * columns + j];
        bias[j] += sum;
    });
}

template <class T>
__device__ void mini_batch_backward(const TttMlpTask<T>& task, const Arrays& a, const State& state, float* dstate,
                                    float* part, const float* norm_weight, const Place& place) {
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, g = sizes.hidden, b = sizes.mini_batch, tokens = place.tokens;
    const State d = state_at(dstate, sizes);
    float *const dnorm_weight = part + sizes.state_count(), *const dnorm_bias = dnorm_weight + f;
    float* const dtoken_scale = dnorm_bias + f;

    load_rows(a.dout, task.dy, place, sizes);
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        norm_backward_row(a.dread2 + row * f, a.dout + row * f, a.read2 + row * f, a.read_inverse_deviation[row],
                          norm_weight, f, lane);
    });
    for_elements(f, [&](int j) {
        for (int t = 0; t < tokens; ++t) {
            dnorm_weight[j] += a.dout[t * f + j] * a.read2[t * f + j];
            dnorm_bias[j] += a.dout[t * f + j];
        }
    });
    __syncthreads();

    // The second layer's read, and what dW2' gives.
    factor_backward(a, a.dfactor2, a.dread2, a.gradient2, a.score2, f, tokens, b, false);
    product(tokens, f, g, {a.hidden, g, 1}, d.weight2,
            [&](int i, int j, float sum) { a.dgradient2[i * f + j] = -a.last[i] * (sum + d.bias2[j]); });
    product(tokens, g, f, {a.gradient2, f, 1}, d.weight2.transposed(),
            [&](int i, int j, float sum) { a.dhidden[i * g + j] = sum; });  // R2
    product(tokens, g, f, {a.dread2, f, 1}, state.weight2.transposed(),
            [&](int i, int j, float sum) { a.dread_hidden[i * g + j] = sum; });
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        const float term =
            last_term(a.hidden + row * g, a.dhidden + row * g, g, a.gradient2 + row * f, d.bias2, f, lane);
        if (lane == 0) a.dlast[row] = -term;
    });
    __syncthreads();
    product(tokens, f, tokens, Matrix{a.factor2, b, 1}.transposed(), {a.dread2, f, 1},
            [&](int i, int j, float sum) { a.dgradient2[i * f + j] -= sum; });
    product(tokens, g, tokens, Matrix{a.dfactor2, b, 1}.transposed(), {a.read_hidden, g, 1},
            [&](int i, int j, float sum) { a.dhidden[i * g + j] = sum - a.last[i] * a.dhidden[i * g + j]; });
    product(tokens, g, tokens, {a.dfactor2, b, 1}, {a.hidden, g, 1}, [&](int i, int j, float sum) {
        a.dread1[i * g + j] = (a.dread_hidden[i * g + j] + sum) * gelu_at(a.read1[i * g + j]).slope;
    });
    __syncthreads();

    // The first layer's read, and what dW1' gives.
    factor_backward(a, a.dfactor1, a.dread1, a.gradient1, a.score1, g, tokens, b, true);
    product(tokens, f, g, {a.dread1, g, 1}, state.weight1.transposed(),
            [&](int i, int j, float sum) { a.dquery[i * f + j] = a.dout[i * f + j] + sum; });
    product(tokens, f, g, {a.gradient1, g, 1}, d.weight1.transposed(),
            [&](int i, int j, float sum) { a.dkey[i * f + j] = sum; });  // R1
    product(tokens, g, f, {a.key, f, 1}, d.weight1,
            [&](int i, int j, float sum) { a.dgradient1[i * g + j] = -a.last[i] * (sum + d.bias1[j]); });
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        const float term = last_term(a.key + row * f, a.dkey + row * f, f, a.gradient1 + row * g, d.bias1, g, lane);
        if (lane == 0) a.dlast[row] -= term;
    });
    __syncthreads();
    product(tokens, f, tokens, {a.dfactor1, b, 1}, {a.key, f, 1},
            [&](int i, int j, float sum) { a.dquery[i * f + j] += sum; });
    product(tokens, f, tokens, Matrix{a.dfactor1, b, 1}.transposed(), {a.query, f, 1},
            [&](int i, int j, float sum) { a.dkey[i * f + j] = sum - a.last[i] * a.dkey[i * f + j]; });
    product(tokens, g, tokens, Matrix{a.factor1, b, 1}.transposed(), {a.dread1, g, 1}, [&](int i, int j, float sum) {
        const int at = i * g + j;
        const float dgradient = a.dgradient1[at] - sum;
        const Gelu gelu = gelu_at(a.input[at]);
        a.dpulled[at] = dgradient * gelu.slope;
        a.dinput[at] = dgradient * a.pulled[at] * gelu.curvature;
    });
    __syncthreads();

    // Backward through the loss.
    product(tokens, f, g, {a.dpulled, g, 1}, state.weight2,
            [&](int i, int j, float sum) { a.dgradient2[i * f + j] += sum; });
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        loss_backward_row(a.dgradient2 + row * f, a.ddifference + row * f, a.normalised + row * f,
                          a.difference + row * f, a.gradient2 + row * f, a.inverse_deviation[row], a.projection[row],
                          norm_weight, f, lane);
    });
    __syncthreads();
    for_elements(f, [&](int j) {
        for (int t = 0; t < tokens; ++t) {
            dnorm_weight[j] += a.normalised[t * f + j];
            dnorm_bias[j] += a.ddifference[t * f + j];
        }
    });
    product(tokens, g, f, {a.dgradient2, f, 1}, state.weight2.transposed(), [&](int i, int j, float sum) {
        const int at = i * g + j;
        a.dinput[at] += (a.dhidden[at] + sum) * gelu_at(a.input[at]).slope;
    });
    __syncthreads();
    product(tokens, f, g, {a.dinput, g, 1}, state.weight1.transposed(), [&](int i, int j, float sum) {
        const int at = i * f + j;
        a.dkey[at] += sum + a.ddifference[at];  // the target is V - K
        a.ddifference[at] = -a.ddifference[at];
    });
    __syncthreads();
    store_rows(task.dq, a.dquery, place, sizes);
    store_rows(task.dk, a.dkey, place, sizes);
    store_rows(task.dv, a.ddifference, place, sizes);
    add_outer(d.weight1, d.bias1, a.query, a.dread1, a.key, a.dinput, nullptr, nullptr, f, g, tokens);
    add_outer(d.weight2, d.bias2, a.read_hidden, a.dread2, a.hidden, a.dgradient2, a.dpulled, a.gradient2, g, f,
              tokens);

    // dE and de to dλ and dτ.
    for_elements(tokens, [&](int i) {
        float step = a.scale[tokens - 1] * a.dlast[i], scale = 0;
        for (int t = 0; t < tokens; ++t) {
            step += a.scale[t] * a.dscale[t * b + i];
            scale += a.step[t] * (a.dscale[i * b + t] + (i == tokens - 1 ? a.dlast[t] : 0.0f));
        }
        task.dstep_size[place.step + static_cast<std::int64_t>(i) * sizes.heads] = step;
        dtoken_scale[i] += scale;
    });
    __syncthreads();
}

template <class T>
__device__ void backward_piece(const TttMlpTask<T>& task, const Arrays& a, float* dstate, float* part,
                               const TttPiece& piece, std::int64_t pair) {
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width;
    const std::int64_t count = sizes.state_count(), head = pair % sizes.heads;
    const float *norm_weight = task.norm_weight + head * f, *norm_bias = task.norm_bias + head * f;
    const std::int64_t mini_batches = (piece.length + sizes.mini_batch - 1) / sizes.mini_batch;
    for (std::int64_t group = (mini_batches - 1) / sizes.group; group >= 0; --group) {
        const std::int64_t begin = group * sizes.group;
        const std::int64_t end = begin + sizes.group < mini_batches ? begin + sizes.group : mini_batches;
        const auto load_key_side = [&](std::int64_t number) {
            const Place place = place_of(sizes, piece, pair, number);
            load_keys(a, task.k, task.v, task.step_size, task.token_scale, place, sizes);
            key_side(a, state_at(a.states + (number - begin) * count, sizes), norm_weight, norm_bias, place.tokens,
                     sizes);
            return place;
        };
        // Recompute the states of this group.
        if (group == 0) {
            load_start(a.states, task, piece, pair);
        } else {
            const float* kept = kept_state(task, piece, pair, begin);
            for_elements(static_cast<int>(count), [&](int i) { a.states[i] = kept[i]; });
        }
        for (std::int64_t number = begin; number + 1 < end; ++number) {
            const Place place = load_key_side(number);
            update(a, state_at(a.states + (number - begin + 1) * count, sizes),
                   state_at(a.states + (number - begin) * count, sizes), place.tokens, sizes);
        }
        for (std::int64_t number = end - 1; number >= begin; --number) {
            const State state = state_at(a.states + (number - begin) * count, sizes);
            const Place place = load_key_side(number);
            query_side(a, state, task.q, place, sizes);
            mini_batch_backward(task, a, state, dstate, part, norm_weight, place);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(threads) backward(TttMlpTask<T> task) {
    const TttMlpSizes& sizes = task.sizes;
    const int count = static_cast<int>(sizes.state_count());
    const bool summed = !task.pieces.joined();
    Arrays a;
    place(a, task.work + blockIdx.x * task.work_count, sizes, true, summed);
    for (std::int64_t pair = blockIdx.x; pair < sizes.pairs(); pair += gridDim.x) {
        float* const part = task.parts + pair * sizes.part_count;
        float* const dstate = summed ? a.dstate : part;
        const bool hands_back = summed && task.pieces.dinitial.weight1;
        __syncthreads();
        for_elements(static_cast<int>(sizes.part_count), [&](int i) { part[i] = 0; });
        if (summed) for_elements(count, [&](int i) { dstate[i] = 0; });
        if (hands_back || task.dfinal.weight1) __syncthreads();
        if (hands_back) {
            store_model(dstate, task.pieces.dinitial, pair, sizes);
            __syncthreads();
        }
        if (task.dfinal.weight1) load_model(dstate, task.dfinal, pair, sizes);
        TttPiece piece;
        for (int end = task.pieces.length; end > 0; end = piece.begin) {
            piece = task.pieces.before(pair / sizes.heads, end);
            backward_piece(task, a, dstate, part, piece, pair);
            if (!summed) continue;
            if (piece.carried) store_model(dstate, task.pieces.dinitial, pair, sizes);
            __syncthreads();
            for_elements(count, [&](int i) {
                if (!piece.carried) part[i] += dstate[i];
                dstate[i] = 0;
            });
        }
    }
}

}  // namespace
}  // namespace general

std::int64_t ttt_mlp_general_work(const TttMlpSizes& sizes, bool backward, bool summed) {
    general::Arrays arrays;
    return general::place(arrays, nullptr, sizes, backward, summed);
}

void ttt_mlp_forward_general(const TttArguments& arguments, Type type) {
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        TttMlpTask<T> task = ttt_mlp_task<T>(arguments);
        const std::int64_t blocks = ttt_mlp_blocks(arguments);
        task.work_count = ttt_mlp_general_work(task.sizes, false, false);
        task.work =
            static_cast<float*>(arguments.scratch(static_cast<std::size_t>(blocks * task.work_count) * sizeof(float)));
        launch({"ttt_mlp_forward_general", dim3(static_cast<unsigned>(blocks)), general::threads, 0, arguments.stream},
               general::forward<T>, task);
    });
}

void ttt_mlp_backward_general(const TttArguments& arguments, Type type, float* parts, float* work) {
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        TttMlpTask<T> task = ttt_mlp_task<T>(arguments);
        task.work_count = ttt_mlp_general_work(task.sizes, true, !arguments.shape.documents.joined());
        task.work = work;
        task.parts = parts;
        launch({"ttt_mlp_backward_general", dim3(static_cast<unsigned>(ttt_mlp_blocks(arguments))), general::threads, 0,
                arguments.stream},
               general::backward<T>, task);
    });
}

}  // namespace lockstep::kernels::cuda
