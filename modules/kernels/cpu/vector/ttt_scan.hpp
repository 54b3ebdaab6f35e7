// The scan over the mini-batches of one head of one sequence, forward and backward; see ttt.hpp.
#pragma once

#include "kernels/cpu/vector/ttt_layer.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// The keys' side of one mini-batch.
struct KeySide {
    float* key;      // K [f, b]
    LossTerms loss;  // of the last layer's Z: X̂, D, G, …
    // mlp:
    float* input;     // Z1 [g, b]
    float* hidden;    // X2 = φ(Z1)
    float* slope;     // φ'(Z1)
    float* pulled;    // J = G2 W2ᵀ
    float* gradient;  // G1 = J ⊙ φ'(Z1)
};

static inline void take_key_side(KeySide& side, Carver& carver, const TttGeometry& g) {
    const std::int64_t narrow = g.width * g.padded_batch, wide = g.hidden * g.padded_batch;
    side.key = carver.take(narrow);
    side.loss.normalised = carver.take(narrow);
    side.loss.difference = carver.take(narrow);
    side.loss.gradient = carver.take(narrow);
    side.loss.inverse_deviation = carver.take(g.padded_batch);
    side.loss.projection = carver.take(g.padded_batch);
    if (!g.mlp) return;
    side.input = carver.take(wide);
    side.hidden = carver.take(wide);
    side.slope = carver.take(wide);
    side.pulled = carver.take(wide);
    side.gradient = carver.take(wide);
}

// The queries' side: what reading a mini-batch computes.
struct QuerySide {
    float* query;              // Q [f, b]
    float* normalised;         // Z̄ of the last layer, then X̂ of it
    float* inverse_deviation;  // 1/σ of it [b]
    Attended first;
    // mlp:
    float* input;   // Z̄1 [g, b]
    float* hidden;  // X̄2
    float* slope;   // φ'(Z̄1)
    Attended second;
};

static inline void take_query_side(QuerySide& side, Carver& carver, const TttGeometry& g) {
    const std::int64_t narrow = g.width * g.padded_batch, wide = g.hidden * g.padded_batch;
    const std::int64_t square = g.padded_batch * g.padded_batch;
    side.query = carver.take(narrow);
    side.normalised = carver.take(narrow);
    side.inverse_deviation = carver.take(g.padded_batch);
    side.first = {carver.take(square), carver.take(square)};
    if (!g.mlp) return;
    side.input = carver.take(wide);
    side.hidden = carver.take(wide);
    side.slope = carver.take(wide);
    side.second = {carver.take(square), carver.take(square)};
}

static inline void activate(float* y, float* slope, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        y[i] = gelu(x[i]);
        slope[i] = gelu_derivative(x[i]);
    }
}

// The gradient of the inner loss at `state`, from k and v of the mini-batch's first token.
template <class T>
static inline void take_gradient(const TttGeometry& g, const KeySide& side, float* state, const T* k, const T* v,
                                 const float* norm_weight, const float* norm_bias, std::int64_t tokens) {
    const std::int64_t batch = g.padded_batch, stride = g.heads * g.width;
    transpose(side.key, batch, k, stride, tokens, g.width, batch);
    transpose(side.loss.difference, batch, v, stride, tokens, g.width, batch);
#pragma omp simd
    for (std::int64_t i = 0; i < g.width * batch; ++i) side.loss.difference[i] -= side.key[i];
    const Layer first = first_layer(g, state);
    if (!g.mlp) {
        apply(side.loss.normalised, first, side.key, batch);
        loss_gradient(side.loss, norm_weight, norm_bias, g.width, batch);
        return;
    }
    const Layer second = second_layer(g, state);
    apply(side.input, first, side.key, batch);
    activate(side.hidden, side.slope, side.input, g.hidden * batch);
    apply(side.loss.normalised, second, side.hidden, batch);
    loss_gradient(side.loss, norm_weight, norm_bias, g.width, batch);
    apply_transposed(side.pulled, second, side.loss.gradient, batch, false);
#pragma omp simd
    for (std::int64_t i = 0; i < g.hidden * batch; ++i) side.gradient[i] = side.pulled[i] * side.slope[i];
}

static inline void update_state(const TttGeometry& g, float* state, const KeySide& side, const Steps& steps,
                                float* rows) {
    update(first_layer(g, state), side.key, g.mlp ? side.gradient : side.loss.gradient, steps, rows);
    if (g.mlp) update(second_layer(g, state), side.hidden, side.loss.gradient, steps, rows);
}

// Up to X̂ and 1/σ of the last Z̄.
template <class T>
static inline void read_state(const TttGeometry& g, const QuerySide& side, float* state, const T* q,
                              const KeySide& keys, const Steps& steps) {
    const std::int64_t batch = g.padded_batch;
    transpose(side.query, batch, q, g.heads * g.width, steps.tokens, g.width, batch);
    const Layer first = first_layer(g, state);
    if (g.mlp) {
        read(side.input, side.first, first, side.query, keys.key, keys.gradient, steps);
        activate(side.hidden, side.slope, side.input, g.hidden * batch);
        read(side.normalised, side.second, second_layer(g, state), side.hidden, keys.hidden, keys.loss.gradient, steps);
    } else {
        read(side.normalised, side.first, first, side.query, keys.key, keys.loss.gradient, steps);
    }
    normalise(side.normalised, side.inverse_deviation, g.width, batch);
}

struct ForwardBuffers {
    Steps steps;
    KeySide keys;
    QuerySide queries;
    float* rows;  // token-major [b, widest padded row]
};

static inline std::int64_t take_forward(ForwardBuffers& buffers, const TttGeometry& g, float* memory) {
    Carver carver{memory, 0};
    take_steps(buffers.steps, carver, g.padded_batch);
    take_key_side(buffers.keys, carver, g);
    take_query_side(buffers.queries, carver, g);
    buffers.rows = carver.take(g.padded_batch * g.padded_hidden);
    return carver.used;
}

static inline std::int64_t forward_scratch(const TttGeometry& g) {
    ForwardBuffers buffers;
    return take_forward(buffers, g, nullptr);
}

template <class T>
static inline void forward(const TttGeometry& g, const TttForward<T>& task, float* scratch) {
    ForwardBuffers buffers;
    take_forward(buffers, g, scratch);
    const std::int64_t batch = g.padded_batch, stride = g.heads * g.width;
    for (std::int64_t start = 0, number = 0; start < g.length; start += g.mini_batch, ++number) {
        const std::int64_t rest = g.length - start, tokens = rest < g.mini_batch ? rest : g.mini_batch;
        if (task.checkpoints && number > 0 && number % ttt_group == 0)
            copy(task.checkpoints + (number / ttt_group - 1) * g.state_count, task.state, g.state_count);
        fill_steps(buffers.steps, tokens, task.token_scale, task.step_size + start * g.heads, g.heads);
        take_gradient(g, buffers.keys, task.state, task.k + start * stride, task.v + start * stride, task.norm_weight,
                      task.norm_bias, tokens);
        read_state(g, buffers.queries, task.state, task.q + start * stride, buffers.keys, buffers.steps);
        float* out = buffers.queries.normalised;
        for (std::int64_t o = 0; o < g.width; ++o) {
            const float weight = task.norm_weight[o], bias = task.norm_bias[o];
            const float* query = buffers.queries.query + o * batch;
#pragma omp simd
            for (std::int64_t t = 0; t < batch; ++t)
                out[o * batch + t] = query[t] + (weight * out[o * batch + t] + bias);
        }
        transpose(task.y + start * stride, stride, out, batch, g.width, tokens, g.width);
        if (rest > g.mini_batch || task.last_update)
            update_state(g, task.state, buffers.keys, buffers.steps, buffers.rows);
    }
}

struct BackwardBuffers {
    Steps steps;
    KeySide keys[ttt_group];
    float* states[ttt_group];
    QuerySide queries;
    LayerScratch layer;
    float *dy, *dread, *dquery, *dkey, *dgradient, *ddifference;          // [f, b]
    float *dread_hidden, *dhidden, *dhidden_gradient, *dinput, *dpulled;  // [g, b], mlp
    float *scale_gradient, *last_gradient;                                // dEᵀ [b, b], de [b]
    float *dnorm_weight, *dnorm_bias;                                     // per lane [f, b]
};

static inline std::int64_t take_backward(BackwardBuffers& buffers, const TttGeometry& g, float* memory) {
    Carver carver{memory, 0};
    const std::int64_t narrow = g.width * g.padded_batch, wide = g.hidden * g.padded_batch;
    const std::int64_t square = g.padded_batch * g.padded_batch;
    take_steps(buffers.steps, carver, g.padded_batch);
    for (std::int64_t i = 0; i < ttt_group; ++i) {
        take_key_side(buffers.keys[i], carver, g);
        buffers.states[i] = carver.take(g.state_count);
    }
    take_query_side(buffers.queries, carver, g);
    buffers.layer = {carver.take(g.padded_batch * g.padded_hidden), carver.take(wide), carver.take(square),
                     carver.take(square)};
    float** const narrow_pieces[] = {&buffers.dy,           &buffers.dread,     &buffers.dquery,
                                     &buffers.dkey,         &buffers.dgradient, &buffers.ddifference,
                                     &buffers.dnorm_weight, &buffers.dnorm_bias};
    float** const wide_pieces[] = {&buffers.dread_hidden, &buffers.dhidden, &buffers.dhidden_gradient, &buffers.dinput,
                                   &buffers.dpulled};
    for (float** piece : narrow_pieces) *piece = carver.take(narrow);
    for (float** piece : wide_pieces) *piece = g.mlp ? carver.take(wide) : nullptr;
    buffers.scale_gradient = carver.take(square);
    buffers.last_gradient = carver.take(g.padded_batch);
    return carver.used;
}

static inline std::int64_t backward_scratch(const TttGeometry& g) {
    BackwardBuffers buffers;
    return take_backward(buffers, g, nullptr);
}

// From dG of the last layer on: through the loss and the keys' products. ddifference becomes dD = -dT.
static inline void gradient_backward(const TttGeometry& g, const BackwardBuffers& buffers, const KeySide& keys,
                                     float* state, float* dstate, const float* norm_weight) {
    const std::int64_t batch = g.padded_batch, wide = g.hidden * batch;
    const Steps& steps = buffers.steps;
    const Layer first = first_layer(g, state), dfirst = first_layer(g, dstate);
    float* rows = buffers.layer.rows;
    if (!g.mlp) {
        loss_gradient_backward(buffers.dgradient, buffers.ddifference, buffers.dnorm_weight, buffers.dnorm_bias,
                               keys.loss, norm_weight, g.width, batch);
        apply_backward(buffers.dkey, dfirst, buffers.dgradient, first, keys.key, steps, rows);
        return;
    }
    const Layer second = second_layer(g, state), dsecond = second_layer(g, dstate);
    // G1 = J ⊙ φ'(Z1), J = G2 W2ᵀ.
    const float *dg = buffers.dhidden_gradient, *slope = keys.slope, *pulled = keys.pulled, *input = keys.input;
    float *dpulled = buffers.dpulled, *dinput = buffers.dinput;
#pragma omp simd
    for (std::int64_t i = 0; i < wide; ++i) {
        dpulled[i] = dg[i] * slope[i];
        dinput[i] = dg[i] * pulled[i] * gelu_second_derivative(input[i]);
    }
    tile_product(buffers.dgradient, batch, {second.weight, 1, second.padded_outputs}, dpulled, batch, g.width, batch,
                 g.hidden, true);
    transpose(rows, second.padded_outputs, keys.loss.gradient, batch, g.width, steps.tokens, second.padded_outputs);
    tile_product(dsecond.weight, second.padded_outputs, {dpulled, batch, 1}, rows, second.padded_outputs, g.hidden,
                 second.padded_outputs, steps.tokens, true);
    loss_gradient_backward(buffers.dgradient, buffers.ddifference, buffers.dnorm_weight, buffers.dnorm_bias, keys.loss,
                           norm_weight, g.width, batch);
    apply_backward(buffers.dhidden, dsecond, buffers.dgradient, second, keys.hidden, steps, rows);
    const float* dhidden = buffers.dhidden;
#pragma omp simd
    for (std::int64_t i = 0; i < wide; ++i) dinput[i] += dhidden[i] * slope[i];
    apply_backward(buffers.dkey, dfirst, dinput, first, keys.key, steps, rows);
}

// dE and de to dλ and dτ.
static inline void step_backward(const BackwardBuffers& buffers, float* dstep_size, std::int64_t step_stride,
                                 float* dtoken_scale) {
    const Steps& steps = buffers.steps;
    float last = 0;
    for (std::int64_t j = 0; j < steps.tokens; ++j) {
        const float* dscale = buffers.scale_gradient + j * steps.batch;
        const float step_size = steps.step_size[j], *token_scale = steps.token_scale;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < steps.batch; ++i) {
            sum += token_scale[i] * dscale[i];
            dtoken_scale[i] += step_size * dscale[i];
        }
        dstep_size[j * step_stride] = sum + token_scale[steps.tokens - 1] * buffers.last_gradient[j];
        last += step_size * buffers.last_gradient[j];
    }
    dtoken_scale[steps.tokens - 1] += last;
}

template <class T>
static inline void mini_batch_backward(const TttGeometry& g, const TttBackward<T>& task, const BackwardBuffers& buffers,
                                       const KeySide& keys, float* state, std::int64_t start) {
    const std::int64_t batch = g.padded_batch, stride = g.heads * g.width, at = start * stride;
    const Steps& steps = buffers.steps;
    const QuerySide& queries = buffers.queries;
    const std::int64_t tokens = steps.tokens, narrow = g.width * batch;
    read_state(g, queries, state, task.q + at, keys, steps);
    transpose(buffers.dy, batch, task.dy + at, stride, tokens, g.width, batch);
    norm_backward(buffers.dread, buffers.dnorm_weight, buffers.dnorm_bias, buffers.dy, queries.normalised,
                  queries.inverse_deviation, task.norm_weight, g.width, batch);
    set(buffers.scale_gradient, 0, tokens * batch);
    set(buffers.last_gradient, 0, batch);
    copy(buffers.dquery, buffers.dy, narrow);

    const Layer first = first_layer(g, state), dfirst = first_layer(g, task.dstate);
    if (g.mlp) {
        read_backward({buffers.dread_hidden, buffers.dhidden, buffers.dgradient, false}, second_layer(g, task.dstate),
                      buffers.scale_gradient, buffers.last_gradient, buffers.dread, second_layer(g, state),
                      queries.second, queries.hidden, keys.hidden, keys.loss.gradient, steps, buffers.layer);
        float* dread = buffers.dread_hidden;
        const float* slope = queries.slope;
#pragma omp simd
        for (std::int64_t i = 0; i < g.hidden * batch; ++i) dread[i] *= slope[i];
        read_backward({buffers.dquery, buffers.dkey, buffers.dhidden_gradient, true}, dfirst, buffers.scale_gradient,
                      buffers.last_gradient, dread, first, queries.first, queries.query, keys.key, keys.gradient, steps,
                      buffers.layer);
    } else {
        read_backward({buffers.dquery, buffers.dkey, buffers.dgradient, true}, dfirst, buffers.scale_gradient,
                      buffers.last_gradient, buffers.dread, first, queries.first, queries.query, keys.key,
                      keys.loss.gradient, steps, buffers.layer);
    }
    gradient_backward(g, buffers, keys, state, task.dstate, task.norm_weight);
    float *dkey = buffers.dkey, *ddifference = buffers.ddifference;
#pragma omp simd
    for (std::int64_t i = 0; i < narrow; ++i) {
        dkey[i] += ddifference[i];  // the target is V - K
        ddifference[i] = -ddifference[i];
    }
    transpose(task.dq + at, stride, buffers.dquery, batch, g.width, tokens, g.width);
    transpose(task.dk + at, stride, dkey, batch, g.width, tokens, g.width);
    transpose(task.dv + at, stride, ddifference, batch, g.width, tokens, g.width);
    step_backward(buffers, task.dstep_size + start * g.heads, g.heads, task.dtoken_scale);
}

template <class T>
static inline void backward(const TttGeometry& g, const TttBackward<T>& task, float* scratch) {
    BackwardBuffers buffers;
    take_backward(buffers, g, scratch);
    const std::int64_t stride = g.heads * g.width, batch = g.padded_batch;
    const std::int64_t mini_batches = (g.length + g.mini_batch - 1) / g.mini_batch;
    set(task.dtoken_scale, 0, batch);
    set(buffers.dnorm_weight, 0, g.width * batch);
    set(buffers.dnorm_bias, 0, g.width * batch);
    for (std::int64_t group = (mini_batches - 1) / ttt_group; group >= 0; --group) {
        const std::int64_t begin = group * ttt_group;
        const std::int64_t end = begin + ttt_group < mini_batches ? begin + ttt_group : mini_batches;
        // The states and the keys' sides of this group once more.
        copy(buffers.states[0], group ? task.checkpoints + (group - 1) * g.state_count : task.state, g.state_count);
        for (std::int64_t number = begin; number < end; ++number) {
            const std::int64_t start = number * g.mini_batch, rest = g.length - start, index = number - begin;
            const std::int64_t tokens = rest < g.mini_batch ? rest : g.mini_batch;
            take_gradient(g, buffers.keys[index], buffers.states[index], task.k + start * stride,
                          task.v + start * stride, task.norm_weight, task.norm_bias, tokens);
            if (number + 1 == end) break;
            fill_steps(buffers.steps, tokens, task.token_scale, task.step_size + start * g.heads, g.heads);
            copy(buffers.states[index + 1], buffers.states[index], g.state_count);
            update_state(g, buffers.states[index + 1], buffers.keys[index], buffers.steps, buffers.layer.rows);
        }
        for (std::int64_t number = end - 1; number >= begin; --number) {
            const std::int64_t start = number * g.mini_batch, rest = g.length - start, index = number - begin;
            fill_steps(buffers.steps, rest < g.mini_batch ? rest : g.mini_batch, task.token_scale,
                       task.step_size + start * g.heads, g.heads);
            mini_batch_backward(g, task, buffers, buffers.keys[index], buffers.states[index], start);
        }
    }
    for (std::int64_t o = 0; o < g.width; ++o) {
        float weight = 0, bias = 0;
        for (std::int64_t t = 0; t < batch; ++t) {
            weight += buffers.dnorm_weight[o * batch + t];
            bias += buffers.dnorm_bias[o * batch + t];
        }
        task.dnorm_weight[o] = weight;
        task.dnorm_bias[o] = bias;
    }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
