// One layer of the TTT inner model, z = x W + c, within a mini-batch: the keys' inputs X were multiplied by W and gave
// the gradient G of the inner loss; the queries' inputs X̄ are read with the state after each token. All matrices are
// feature-major [features, padded tokens] except W, which is as stored.
//
// Everything is a template on the geometry G: TttGeometry, or a FixedGeometry with sizes and strides known at compile
// time, which keeps the products in registers.
#pragma once

#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/ttt_tokens.hpp"
#include "kernels/cpu/vector/ttt_transpose.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// Carves arrays, each 64-byte aligned, from a block of memory; without memory it only counts.
struct Carver {
    float* memory;
    std::int64_t used;
    float* take(std::int64_t count) {
        float* piece = memory ? memory + used : nullptr;
        used += (count + ttt_block - 1) / ttt_block * ttt_block;
        return piece;
    }
    template <class... Pieces>
    void take_each(std::int64_t count, Pieces&... pieces) {
        ((pieces = take(count)), ...);
    }
};

static inline void set(float* to, float value, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = value;
}
static inline void copy(float* to, const float* from, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// The geometry of whole mini-batches of 16 tokens and heads of f features, a multiple of 16.
template <std::int64_t f, bool is_mlp>
struct FixedGeometry {
    static constexpr bool fixed = true, mlp = is_mlp;
    static constexpr std::int64_t mini_batch = ttt_block, padded_batch = ttt_block;
    static constexpr std::int64_t width = f, hidden = mlp ? 4 * f : f, padded_width = width, padded_hidden = hidden;
    static constexpr std::int64_t state_count = (width + 1) * hidden + (mlp ? (hidden + 1) * width : 0);
    std::int64_t length, heads;
};

struct Layer {
    static constexpr bool fixed = false;
    std::int64_t inputs, outputs, padded_outputs;
    float *weight, *bias;  // [inputs, padded outputs], [padded outputs]
};
template <std::int64_t inputs_of, std::int64_t outputs_of>
struct FixedLayer {
    static constexpr bool fixed = true;
    static constexpr std::int64_t inputs = inputs_of, outputs = outputs_of, padded_outputs = outputs_of;
    float *weight, *bias;
};

template <class G>
static inline auto first_layer(const G& g, float* state) {
    float* bias = state + g.width * g.padded_hidden;
    if constexpr (G::fixed)
        return FixedLayer<G::width, G::hidden>{state, bias};
    else
        return Layer{g.width, g.hidden, g.padded_hidden, state, bias};
}
template <class G>
static inline auto second_layer(const G& g, float* state) {
    float* weight = state + (g.width + 1) * g.padded_hidden;
    float* bias = weight + g.hidden * g.padded_width;
    if constexpr (G::fixed)
        return FixedLayer<G::hidden, G::width>{weight, bias};
    else
        return Layer{g.hidden, g.width, g.padded_width, weight, bias};
}

// The tokens of one mini-batch and their learning rates.
struct Steps {
    std::int64_t tokens;  // r
    float* token_scale;   // τ [b], zero beyond r
    float* step_size;     // λ [b], likewise
    float* last;          // e = λ τ_r [b]
    float* scale;         // Eᵀ with the mask: row j, column i >= j holds τ_i λ_j, other elements 0; [b, b]
};

static inline void take_steps(Steps& steps, Carver& carver, std::int64_t batch) {
    steps.token_scale = carver.take(batch);
    steps.step_size = carver.take(batch);
    steps.last = carver.take(batch);
    steps.scale = carver.take(batch * batch);
}

template <class G>
static inline void fill_steps(const G& g, Steps& steps, std::int64_t tokens, const float* token_scale,
                              const float* step_size, std::int64_t step_stride) {
    const std::int64_t batch = g.padded_batch;
    steps.tokens = tokens;
    for (std::int64_t i = 0; i < batch; ++i) {
        steps.token_scale[i] = i < tokens ? token_scale[i] : 0;
        steps.step_size[i] = i < tokens ? step_size[i * step_stride] : 0;
        steps.last[i] = i < tokens ? steps.step_size[i] * token_scale[tokens - 1] : 0;
    }
    for (std::int64_t j = 0; j < batch; ++j) {
        const float *scale = steps.token_scale, step = steps.step_size[j];
#pragma omp simd
        for (std::int64_t i = 0; i < batch; ++i) steps.scale[j * batch + i] = i < j ? 0 : scale[i] * step;
    }
}

// The number of tokens that sums over tokens run over; padding adds nothing.
template <class G>
static inline std::int64_t summed_tokens(const G&, const Steps& steps) {
    if constexpr (G::fixed)
        return G::padded_batch;
    else
        return steps.tokens;
}

// tile_sum, for any geometry.
template <class G, class... Terms>
LOCKSTEP_ALWAYS_INLINE void product(const G&, const TileOutput& c, std::int64_t m, std::int64_t n,
                                    const Terms&... terms) {
    if constexpr (G::fixed) {
        tile_sum(c, m, n, terms...);
    } else {
        for (std::int64_t i = 0; i < m; ++i)
            if (c.row_base)
                set(c.data + i * c.stride, c.row_base[i], n);
            else if (c.base && c.base != c.data)
                copy(c.data + i * c.stride, c.base + i * c.base_stride, n);
        bool accumulate = c.base || c.row_base;
        ((tile_product(c.data, c.stride, terms.a, terms.b, terms.b_stride, m, n, terms.k, accumulate),
          accumulate = true),
         ...);
    }
}

// For sums of products with one row of tokens per feature:  X W,  X Wᵀ,  and Σ_j x_j s_ji, s [b, b].
template <class G, class L>
LOCKSTEP_ALWAYS_INLINE TileTerm through(const G& g, const L& layer, const float* x) {
    return {{layer.weight, 1, layer.padded_outputs}, x, g.padded_batch, layer.inputs};
}
template <class G, class L>
LOCKSTEP_ALWAYS_INLINE TileTerm back_through(const G& g, const L& layer, const float* z) {
    return {{layer.weight, layer.padded_outputs, 1}, z, g.padded_batch, layer.outputs};
}
template <class G>
LOCKSTEP_ALWAYS_INLINE TileTerm mixed(const G& g, const float* x, const float* strength, const Steps& steps) {
    return {{x, g.padded_batch, 1}, strength, g.padded_batch, summed_tokens(g, steps)};
}
// For the rank-b updates of W: Xᵀ D, D token-major.
template <class G, class L>
LOCKSTEP_ALWAYS_INLINE TileTerm outer(const G& g, const L& layer, const float* x, const float* d, const Steps& steps) {
    return {{x, g.padded_batch, 1}, d, layer.padded_outputs, summed_tokens(g, steps)};
}
// Rows of tokens, overwritten, accumulated, or with c added to each.
template <class G>
LOCKSTEP_ALWAYS_INLINE TileOutput rows_of(const G& g, float* z) {
    return {z, g.padded_batch, nullptr, 0, nullptr};
}
template <class G>
LOCKSTEP_ALWAYS_INLINE TileOutput added_to(const G& g, float* z, const float* base) {
    return {z, g.padded_batch, base, g.padded_batch, nullptr};
}
template <class G, class L>
LOCKSTEP_ALWAYS_INLINE TileOutput biased(const G& g, float* z, const L& layer) {
    return {z, g.padded_batch, nullptr, 0, layer.bias};
}

// Z = X W + c.
template <class G, class L>
static inline void apply(const G& g, float* z, const L& layer, const float* x) {
    product(g, biased(g, z, layer), layer.outputs, g.padded_batch, through(g, layer, x));
}

// What `read` saves for its backward: row j, column i, [b, b].
struct Attended {
    float* score;     // Sᵀ: 1 + x̄_i · x_j
    float* strength;  // -Pᵀ: minus score times step
};

// Z̄ = X̄ W + c - P G.
template <class G, class L>
static inline void read(const G& g, float* z, const Attended& attended, const L& layer, const float* query,
                        const float* key, const float* gradient, const Steps& steps) {
    const std::int64_t batch = g.padded_batch, tokens = summed_tokens(g, steps);
    product(g, rows_of(g, attended.score), tokens, batch, TileTerm{{key, 1, batch}, query, batch, layer.inputs});
    float *score = attended.score, *strength = attended.strength;
    const float* scale = steps.scale;
#pragma omp simd
    for (std::int64_t i = 0; i < tokens * batch; ++i) {
        score[i] += 1.0f;
        strength[i] = -score[i] * scale[i];
    }
    product(g, biased(g, z, layer), layer.outputs, batch, through(g, layer, query),
            mixed(g, gradient, attended.strength, steps));
}

// rows [b, padded outputs] = the transpose of z [outputs, b].
template <class G, class L>
static inline void take_rows(const G& g, const L& layer, float* rows, const float* z, const Steps& steps) {
    transpose(rows, layer.padded_outputs, z, g.padded_batch, layer.outputs, summed_tokens(g, steps),
              layer.padded_outputs);
}

// c += Σ D, D token-major.
template <class G, class L>
static inline void add_rows(const G& g, const L& layer, const float* d, const Steps& steps) {
    const std::int64_t tokens = summed_tokens(g, steps);
    for (std::int64_t t = 0; t < tokens; ++t) {
        const float* row = d + t * layer.padded_outputs;
        float* bias = layer.bias;
#pragma omp simd
        for (std::int64_t o = 0; o < layer.padded_outputs; ++o) bias[o] += row[o];
    }
}

// W' = W - (e⊙X)ᵀ G, c' = c - eᵀ G; `after` may be `before`. `rows` is scratch for a token-major copy of G.
template <class G, class L>
static inline void update(const G& g, const L& after, const L& before, const float* x, const float* gradient,
                          const Steps& steps, float* rows) {
    const std::int64_t tokens = summed_tokens(g, steps), stride = before.padded_outputs;
    take_rows(g, before, rows, gradient, steps);
    if (after.bias != before.bias) copy(after.bias, before.bias, stride);
    for (std::int64_t t = 0; t < tokens; ++t) {
        float *row = rows + t * stride, *bias = after.bias;
        const float factor = -steps.last[t];
#pragma omp simd
        for (std::int64_t o = 0; o < stride; ++o) {
            row[o] *= factor;
            bias[o] += row[o];
        }
    }
    product(g, TileOutput{after.weight, stride, before.weight, stride, nullptr}, before.inputs, stride,
            outer(g, before, x, rows, steps));
}

// Scratch for the backward of one layer.
struct LayerScratch {
    float* rows;               // token-major [b, padded outputs]: of dZ̄
    float* weighted;           // feature-major [outputs, b]: -e⊙G
    float* score;              // dSᵀ [b, b]
    float* score_by_query;     // dS [b, b]
    float* strength_by_query;  // -P [b, b]
};

static inline void take_layer(LayerScratch& scratch, Carver& carver, std::int64_t outputs, std::int64_t padded_outputs,
                              std::int64_t batch) {
    scratch.rows = carver.take(batch * padded_outputs);
    scratch.weighted = carver.take(outputs * batch);
    carver.take_each(batch * batch, scratch.score, scratch.score_by_query, scratch.strength_by_query);
}

struct LayerGradients {
    float* query;             // dX̄, overwritten
    const float* query_base;  // its initial value; may be null
    float* gradient;          // dG, overwritten
};

// Backward of `read` and `update` together, except for the gradients of the keys' X and of the layer, which
// keys_backward and layer_backward add up. dlayer holds the gradient of the state after this mini-batch. scale_gradient
// (dEᵀ) and last_gradient (de) are +=.
template <class G, class L>
static inline void read_backward(const G& g, const LayerGradients& out, const L& dlayer, float* scale_gradient,
                                 float* last_gradient, const float* dz, const L& layer, const Attended& attended,
                                 const float* key, const float* gradient, const Steps& steps,
                                 const LayerScratch& scratch) {
    const std::int64_t batch = g.padded_batch, tokens = summed_tokens(g, steps);
    // The update's part. F = K dW' + dc', de = -Σ G⊙F, dG = -e⊙F; dX = -(e⊙G) dW'ᵀ is left to keys_backward.
    apply(g, out.gradient, dlayer, key);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Tokens last = load(steps.last + t);
        Tokens sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        for_features(layer.outputs, [&](std::int64_t o, int chain) {
            const std::int64_t at = o * batch + t;
            const Tokens f = load(out.gradient + at), loss = load(gradient + at);
            sum[chain] = sum[chain] + f * loss;
            store(out.gradient + at, splat(0) - last * f);
            store(scratch.weighted + at, splat(0) - last * loss);
        });
        store(last_gradient + t, load(last_gradient + t) - total(sum));
    }

    // The reading's part. Row j, column i of dPᵀ is -G_j · dZ̄_i for i >= j.
    product(g, rows_of(g, scratch.score), tokens, batch, TileTerm{{gradient, 1, batch}, dz, batch, layer.outputs});
    for (std::int64_t j = 0; j < tokens; ++j) {
        const float *score = attended.score + j * batch, *scale = steps.scale + j * batch;
        float *dscore = scratch.score + j * batch, *dscale = scale_gradient + j * batch;
#pragma omp simd
        for (std::int64_t i = 0; i < batch; ++i) {
            dscale[i] -= i < j ? 0.0f : dscore[i] * score[i];
            dscore[i] = -dscore[i] * scale[i];
        }
    }
    transpose(scratch.score_by_query, batch, scratch.score, batch, tokens, tokens, batch);
    transpose(scratch.strength_by_query, batch, attended.strength, batch, tokens, tokens, batch);
    product(g, added_to(g, out.query, out.query_base), layer.inputs, batch, back_through(g, layer, dz),
            mixed(g, key, scratch.score, steps));
    product(g, added_to(g, out.gradient, out.gradient), layer.outputs, batch,
            mixed(g, dz, scratch.strength_by_query, steps));
    take_rows(g, layer, scratch.rows, dz, steps);
}

// The complete dX of the keys: from `read` and `update`, and dZ Wᵀ from `apply`.
template <class G, class L>
static inline void keys_backward(const G& g, float* dx, const L& dlayer, const float* dz, const L& layer,
                                 const float* query, const Steps& steps, const LayerScratch& scratch) {
    product(g, rows_of(g, dx), layer.inputs, g.padded_batch, back_through(g, dlayer, scratch.weighted),
            back_through(g, layer, dz), mixed(g, query, scratch.score_by_query, steps));
}

// dW += X̄ᵀ dZ̄ + Xᵀ dZ and dc += Σ dZ̄ + Σ dZ, and what `more` adds to dW; `rows` is scratch for dZ token-major.
template <class G, class L, class... Terms>
static inline void layer_backward(const G& g, const L& dlayer, const float* query, const float* key, const float* dz,
                                  float* rows, const Steps& steps, const LayerScratch& scratch, const Terms&... more) {
    take_rows(g, dlayer, rows, dz, steps);
    add_rows(g, dlayer, scratch.rows, steps);
    add_rows(g, dlayer, rows, steps);
    product(g, TileOutput{dlayer.weight, dlayer.padded_outputs, dlayer.weight, dlayer.padded_outputs, nullptr},
            dlayer.inputs, dlayer.padded_outputs, outer(g, dlayer, query, scratch.rows, steps),
            outer(g, dlayer, key, rows, steps), more...);
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
