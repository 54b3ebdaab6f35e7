// The scan over the mini-batches of one head of one sequence, forward and backward; see ttt.hpp.
#pragma once

#include "kernels/cpu/vector/ttt_layer.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// The keys' side of one mini-batch.
struct KeySide {
    float* key;      // K [f, b]
    LossTerms loss;  // of the last layer's Z: X̂, D, G, …
    // mlp:
    float* input;     // Z1 [g, b]; overwritten by φ''(Z1) if a backward follows
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
    carver.take_each(wide, side.input, side.hidden, side.slope, side.pulled, side.gradient);
}

// The queries' side: what reading a mini-batch computes.
struct QuerySide {
    float* query;              // Q [f, b]
    float* normalised;         // Z̄ of the last layer, then X̂ of it
    float* inverse_deviation;  // 1/σ of it [b]
    Attended first;
    // mlp:
    float* hidden;  // Z̄1 [g, b], then X̄2
    float* slope;   // φ'(Z̄1), if a backward follows
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
    side.hidden = carver.take(wide);
    side.slope = carver.take(wide);
    side.second = {carver.take(square), carver.take(square)};
}

// Rows of a head's slice are too far apart for hardware prefetching. `write`: as for __builtin_prefetch. Inlined, since
// g++ would otherwise treat it as a function without effect.
template <int write, class G, class T>
LOCKSTEP_ALWAYS_INLINE void prefetch_tokens(const G& g, const TttRows<T>& x, std::int64_t start) {
    if (start < 0 || start >= g.length) return;
    const std::int64_t rest = g.length - start, tokens = rest < g.mini_batch ? rest : g.mini_batch;
    constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t t = start; t < start + tokens; ++t)
        for (std::int64_t o = 0; o < g.width; o += line) __builtin_prefetch(x.row(t) + o, write, 2);
}

// φ and its first derivatives; y and curve may be x.
template <int derivatives>
static inline void activate(float* y, float* slope, float* curve, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = x[i];
        const GeluTerms terms = gelu_terms(value);
        y[i] = gelu(value, terms);
        if constexpr (derivatives >= 1) slope[i] = gelu_derivative(terms);
        if constexpr (derivatives >= 2) curve[i] = gelu_second_derivative(terms);
    }
}

// The gradient of the inner loss at `state`, from k and v of `tokens` tokens from `start` on.
template <bool backward_follows, class G, class T>
static inline void take_gradient(const G& g, const KeySide& side, float* state, const TttRows<T>& k,
                                 const TttRows<T>& v, std::int64_t start, const float* norm_weight,
                                 const float* norm_bias, std::int64_t tokens) {
    const std::int64_t batch = g.padded_batch;
    transpose(side.key, batch, k.row(start), k.stride, tokens, g.width, batch);
    transpose(side.loss.difference, batch, v.row(start), v.stride, tokens, g.width, batch);
    const auto first = first_layer(g, state);
    if (!g.mlp) {
        apply(g, side.loss.normalised, first, side.key);
        loss_gradient(side.loss, side.key, norm_weight, norm_bias, g.width, batch);
        return;
    }
    const auto second = second_layer(g, state);
    apply(g, side.input, first, side.key);
    activate<backward_follows ? 2 : 1>(side.hidden, side.slope, side.input, side.input, g.hidden * batch);
    apply(g, side.loss.normalised, second, side.hidden);
    loss_gradient(side.loss, side.key, norm_weight, norm_bias, g.width, batch);
    product(g, rows_of(g, side.pulled), g.hidden, batch, back_through(g, second, side.loss.gradient));
    float* gradient = side.gradient;
    const float *pulled = side.pulled, *slope = side.slope;
#pragma omp simd
    for (std::int64_t i = 0; i < g.hidden * batch; ++i) gradient[i] = pulled[i] * slope[i];
}

// `after` may be `before`.
template <class G>
static inline void update_state(const G& g, float* after, float* before, const KeySide& side, const Steps& steps,
                                float* rows) {
    update(g, first_layer(g, after), first_layer(g, before), side.key, g.mlp ? side.gradient : side.loss.gradient,
           steps, rows);
    if (g.mlp) update(g, second_layer(g, after), second_layer(g, before), side.hidden, side.loss.gradient, steps, rows);
}

// Up to X̂ and 1/σ of the last Z̄.
template <bool backward_follows, class G, class T>
static inline void read_state(const G& g, const QuerySide& side, float* state, const TttRows<T>& q, std::int64_t start,
                              const KeySide& keys, const Steps& steps) {
    const std::int64_t batch = g.padded_batch;
    transpose(side.query, batch, q.row(start), q.stride, steps.tokens, g.width, batch);
    const auto first = first_layer(g, state);
    if (g.mlp) {
        read(g, side.hidden, side.first, first, side.query, keys.key, keys.gradient, steps);
        activate<backward_follows ? 1 : 0>(side.hidden, side.slope, nullptr, side.hidden, g.hidden * batch);
        read(g, side.normalised, side.second, second_layer(g, state), side.hidden, keys.hidden, keys.loss.gradient,
             steps);
    } else {
        read(g, side.normalised, side.first, first, side.query, keys.key, keys.loss.gradient, steps);
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

template <class G, class T>
static inline void scan_forward(const G& g, const TttForward<T>& task, ForwardBuffers& buffers) {
    const std::int64_t batch = g.padded_batch;
    for (std::int64_t start = 0, number = 0; start < g.length; start += g.mini_batch, ++number) {
        const std::int64_t rest = g.length - start, tokens = rest < g.mini_batch ? rest : g.mini_batch;
        if (task.checkpoints && number > 0 && number % ttt_group == 0)
            copy(task.checkpoints + (number / ttt_group - 1) * g.state_count, task.state, g.state_count);
        fill_steps(g, buffers.steps, tokens, task.token_scale, task.step_size + start * g.heads, g.heads);
        const std::int64_t next = start + g.mini_batch;
        prefetch_tokens<0>(g, task.k, next);
        prefetch_tokens<0>(g, task.v, next);
        prefetch_tokens<0>(g, task.q, next);
        prefetch_tokens<1>(g, task.y, next);
        take_gradient<false>(g, buffers.keys, task.state, task.k, task.v, start, task.norm_weight, task.norm_bias,
                             tokens);
        read_state<false>(g, buffers.queries, task.state, task.q, start, buffers.keys, buffers.steps);
        float* out = buffers.queries.normalised;
        for (std::int64_t o = 0; o < g.width; ++o) {
            const float weight = task.norm_weight[o], bias = task.norm_bias[o];
            const float* query = buffers.queries.query + o * batch;
#pragma omp simd
            for (std::int64_t t = 0; t < batch; ++t)
                out[o * batch + t] = query[t] + (weight * out[o * batch + t] + bias);
        }
        transpose(task.y.row(start), task.y.stride, out, batch, g.width, tokens, g.width);
        if (rest > g.mini_batch || task.last_update)
            update_state(g, task.state, task.state, buffers.keys, buffers.steps, buffers.rows);
    }
}

struct BackwardBuffers {
    Steps steps;
    KeySide keys[ttt_group];
    float* states[ttt_group];
    QuerySide queries;
    LayerScratch first, second;
    float *rows, *more_rows;                                      // token-major [b, widest padded row], [b, padded f]
    float *dy, *dread, *dquery, *dkey, *dgradient, *ddifference;  // [f, b]
    float *dread_hidden, *dhidden, *dhidden_gradient, *dpulled;   // [g, b], mlp
    float *scale_gradient, *last_gradient;                        // dEᵀ [b, b], de [b]
    float *dnorm_weight, *dnorm_bias;                             // per lane [f, b]
};

static inline std::int64_t take_backward(BackwardBuffers& buffers, const TttGeometry& g, float* memory) {
    Carver carver{memory, 0};
    const std::int64_t narrow = g.width * g.padded_batch, wide = g.hidden * g.padded_batch;
    take_steps(buffers.steps, carver, g.padded_batch);
    for (std::int64_t i = 0; i < ttt_group; ++i) {
        take_key_side(buffers.keys[i], carver, g);
        buffers.states[i] = carver.take(g.state_count);
    }
    take_query_side(buffers.queries, carver, g);
    take_layer(buffers.first, carver, g.hidden, g.padded_hidden, g.padded_batch);
    if (g.mlp) take_layer(buffers.second, carver, g.width, g.padded_width, g.padded_batch);
    buffers.rows = carver.take(g.padded_batch * g.padded_hidden);
    buffers.more_rows = g.mlp ? carver.take(g.padded_batch * g.padded_width) : nullptr;
    carver.take_each(narrow, buffers.dy, buffers.dread, buffers.dquery, buffers.dkey, buffers.dgradient,
                     buffers.ddifference, buffers.dnorm_weight, buffers.dnorm_bias);
    if (g.mlp) carver.take_each(wide, buffers.dread_hidden, buffers.dhidden, buffers.dhidden_gradient, buffers.dpulled);
    buffers.scale_gradient = carver.take(g.padded_batch * g.padded_batch);
    buffers.last_gradient = carver.take(g.padded_batch);
    return carver.used;
}

static inline std::int64_t backward_scratch(const TttGeometry& g) {
    BackwardBuffers buffers;
    return take_backward(buffers, g, nullptr);
}

// From dG of the last layer, and mlp's dG1, on: through the loss and the keys' products. ddifference becomes dD = -dT.
template <class G>
static inline void gradient_backward(const G& g, const BackwardBuffers& buffers, const KeySide& keys, float* state,
                                     float* dstate, const float* norm_weight) {
    const std::int64_t batch = g.padded_batch, wide = g.hidden * batch;
    const Steps& steps = buffers.steps;
    const QuerySide& queries = buffers.queries;
    const auto first = first_layer(g, state), dfirst = first_layer(g, dstate);
    const float* dinput = buffers.dgradient;
    if (g.mlp) {
        const auto second = second_layer(g, state), dsecond = second_layer(g, dstate);
        // G1 = J ⊙ φ'(Z1), J = G2 W2ᵀ.
        const float *slope = keys.slope, *pulled = keys.pulled, *curve = keys.input;
        float *dpulled = buffers.dpulled, *dg = buffers.dhidden_gradient;
#pragma omp simd
        for (std::int64_t i = 0; i < wide; ++i) {
            dpulled[i] = dg[i] * slope[i];
            dg[i] = dg[i] * pulled[i] * curve[i];
        }
        product(g, added_to(g, buffers.dgradient, buffers.dgradient), g.width, batch,
                through(g, second, buffers.dpulled));
        loss_gradient_backward(buffers.dgradient, buffers.ddifference, buffers.dnorm_weight, buffers.dnorm_bias,
                               keys.loss, norm_weight, g.width, batch);
        keys_backward(g, buffers.dhidden, dsecond, buffers.dgradient, second, queries.hidden, steps, buffers.second);
        take_rows(g, dsecond, buffers.more_rows, keys.loss.gradient, steps);
        layer_backward(g, dsecond, queries.hidden, keys.hidden, buffers.dgradient, buffers.rows, steps, buffers.second,
                       outer(g, dsecond, buffers.dpulled, buffers.more_rows, steps));
        const float* dhidden = buffers.dhidden;
#pragma omp simd
        for (std::int64_t i = 0; i < wide; ++i) dg[i] += dhidden[i] * slope[i];
        dinput = dg;
    } else {
        loss_gradient_backward(buffers.dgradient, buffers.ddifference, buffers.dnorm_weight, buffers.dnorm_bias,
                               keys.loss, norm_weight, g.width, batch);
    }
    keys_backward(g, buffers.dkey, dfirst, dinput, first, queries.query, steps, buffers.first);
    layer_backward(g, dfirst, queries.query, keys.key, dinput, buffers.rows, steps, buffers.first);
}

// dE and de to dλ and dτ.
template <class G>
static inline void step_backward(const G& g, const BackwardBuffers& buffers, float* dstep_size, float* dtoken_scale) {
    const Steps& steps = buffers.steps;
    const std::int64_t batch = g.padded_batch;
    float last = 0;
    for (std::int64_t j = 0; j < steps.tokens; ++j) {
        const float* dscale = buffers.scale_gradient + j * batch;
        const float step_size = steps.step_size[j], *token_scale = steps.token_scale;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < batch; ++i) {
            sum += token_scale[i] * dscale[i];
            dtoken_scale[i] += step_size * dscale[i];
        }
        dstep_size[j * g.heads] = sum + token_scale[steps.tokens - 1] * buffers.last_gradient[j];
        last += step_size * buffers.last_gradient[j];
    }
    dtoken_scale[steps.tokens - 1] += last;
}

template <class G, class T>
static inline void mini_batch_backward(const G& g, const TttBackward<T>& task, const BackwardBuffers& buffers,
                                       const KeySide& keys, float* state, std::int64_t start) {
    const std::int64_t batch = g.padded_batch;
    const Steps& steps = buffers.steps;
    const QuerySide& queries = buffers.queries;
    const std::int64_t tokens = steps.tokens;
    const std::int64_t next = start - g.mini_batch;
    prefetch_tokens<0>(g, task.q, next);
    prefetch_tokens<0>(g, task.dy, next);
    prefetch_tokens<1>(g, task.dq, next);
    prefetch_tokens<1>(g, task.dk, next);
    prefetch_tokens<1>(g, task.dv, next);
    read_state<true>(g, queries, state, task.q, start, keys, steps);
    transpose(buffers.dy, batch, task.dy.row(start), task.dy.stride, tokens, g.width, batch);
    norm_backward(buffers.dread, buffers.dnorm_weight, buffers.dnorm_bias, buffers.dy, queries.normalised,
                  queries.inverse_deviation, task.norm_weight, g.width, batch);
    set(buffers.scale_gradient, 0, batch * batch);
    set(buffers.last_gradient, 0, batch);

    const auto first = first_layer(g, state), dfirst = first_layer(g, task.dstate);
    if (g.mlp) {
        read_backward(g, {buffers.dread_hidden, nullptr, buffers.dgradient}, second_layer(g, task.dstate),
                      buffers.scale_gradient, buffers.last_gradient, buffers.dread, second_layer(g, state),
                      queries.second, keys.hidden, keys.loss.gradient, steps, buffers.second);
        float* dread = buffers.dread_hidden;
        const float* slope = queries.slope;
#pragma omp simd
        for (std::int64_t i = 0; i < g.hidden * batch; ++i) dread[i] *= slope[i];
        read_backward(g, {buffers.dquery, buffers.dy, buffers.dhidden_gradient}, dfirst, buffers.scale_gradient,
                      buffers.last_gradient, dread, first, queries.first, keys.key, keys.gradient, steps,
                      buffers.first);
    } else {
        read_backward(g, {buffers.dquery, buffers.dy, buffers.dgradient}, dfirst, buffers.scale_gradient,
                      buffers.last_gradient, buffers.dread, first, queries.first, keys.key, keys.loss.gradient, steps,
                      buffers.first);
    }
    gradient_backward(g, buffers, keys, state, task.dstate, task.norm_weight);
    float *dkey = buffers.dkey, *ddifference = buffers.ddifference;
#pragma omp simd
    for (std::int64_t i = 0; i < g.width * batch; ++i) {
        dkey[i] += ddifference[i];  // the target is V - K
        ddifference[i] = -ddifference[i];
    }
    transpose(task.dq.row(start), task.dq.stride, buffers.dquery, batch, g.width, tokens, g.width);
    transpose(task.dk.row(start), task.dk.stride, dkey, batch, g.width, tokens, g.width);
    transpose(task.dv.row(start), task.dv.stride, ddifference, batch, g.width, tokens, g.width);
    step_backward(g, buffers, task.dstep_size + start * g.heads, task.dtoken_scale);
}

template <class G, class T>
static inline void scan_backward(const G& g, const TttBackward<T>& task, BackwardBuffers& buffers) {
    const std::int64_t batch = g.padded_batch;
    const std::int64_t mini_batches = (g.length + g.mini_batch - 1) / g.mini_batch;
    set(task.dtoken_scale, 0, batch);
    set(buffers.dnorm_weight, 0, g.width * batch);
    set(buffers.dnorm_bias, 0, g.width * batch);
    for (std::int64_t group = (mini_batches - 1) / ttt_group; group >= 0; --group) {
        const std::int64_t begin = group * ttt_group;
        const std::int64_t end = begin + ttt_group < mini_batches ? begin + ttt_group : mini_batches;
        // Recomputes the states and the keys' sides of this group.
        copy(buffers.states[0], group ? task.checkpoints + (group - 1) * g.state_count : task.state, g.state_count);
        for (std::int64_t number = begin; number < end; ++number) {
            const std::int64_t start = number * g.mini_batch, rest = g.length - start, index = number - begin;
            const std::int64_t tokens = rest < g.mini_batch ? rest : g.mini_batch;
            prefetch_tokens<0>(g, task.k, start + g.mini_batch);
            prefetch_tokens<0>(g, task.v, start + g.mini_batch);
            take_gradient<true>(g, buffers.keys[index], buffers.states[index], task.k, task.v, start, task.norm_weight,
                                task.norm_bias, tokens);
            if (number + 1 == end) break;
            fill_steps(g, buffers.steps, tokens, task.token_scale, task.step_size + start * g.heads, g.heads);
            update_state(g, buffers.states[index + 1], buffers.states[index], buffers.keys[index], buffers.steps,
                         buffers.rows);
        }
        for (std::int64_t number = end - 1; number >= begin; --number) {
            const std::int64_t start = number * g.mini_batch, rest = g.length - start, index = number - begin;
            fill_steps(g, buffers.steps, rest < g.mini_batch ? rest : g.mini_batch, task.token_scale,
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

// Calls body with the geometry, with compile-time sizes if there is such a type: for the models' presets.
template <class Body>
static inline void with_fixed_sizes(const TttGeometry& g, Body&& body) {
    constexpr std::int64_t f = 64;
    if (g.mini_batch != ttt_block || g.width != f)
        body(g);
    else if (g.mlp)
        body(FixedGeometry<f, true>{g.length, g.heads});
    else
        body(FixedGeometry<f, false>{g.length, g.heads});
}

template <class T>
static inline void forward(const TttGeometry& g, const TttForward<T>& task, float* scratch) {
    ForwardBuffers buffers;
    take_forward(buffers, g, scratch);
    with_fixed_sizes(g, [&](const auto& geometry) { scan_forward(geometry, task, buffers); });
}

template <class T>
static inline void backward(const TttGeometry& g, const TttBackward<T>& task, float* scratch) {
    BackwardBuffers buffers;
    take_backward(buffers, g, scratch);
    with_fixed_sizes(g, [&](const auto& geometry) { scan_backward(geometry, task, buffers); });
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
