// One layer of the TTT inner model, z = x W + c, as a mini-batch uses it: the keys' inputs X were multiplied by W and
// gave the gradient G of the inner loss; the queries' inputs X̄ are read with the state after each token. All matrices
// are feature-major [features, padded tokens] but W, which lies as stored.
#pragma once

#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/ttt_tokens.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// Cuts arrays, each aligned to 64 bytes, from a piece of memory; without memory it only counts.
struct Carver {
    float* memory;
    std::int64_t used;
    float* take(std::int64_t count) {
        float* piece = memory ? memory + used : nullptr;
        used += (count + ttt_block - 1) / ttt_block * ttt_block;
        return piece;
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

struct Layer {
    std::int64_t inputs, outputs, padded_outputs;
    float *weight, *bias;  // [inputs, padded outputs], [padded outputs]
};

static inline Layer first_layer(const TttGeometry& g, float* state) {
    return {g.width, g.hidden, g.padded_hidden, state, state + g.width * g.padded_hidden};
}
static inline Layer second_layer(const TttGeometry& g, float* state) {
    float* weight = state + (g.width + 1) * g.padded_hidden;
    return {g.hidden, g.width, g.padded_width, weight, weight + g.hidden * g.padded_width};
}

// The tokens of one mini-batch and how strongly each moves the state.
struct Steps {
    std::int64_t tokens, batch;  // r and its padding
    float* token_scale;          // τ [b], zero beyond r
    float* step_size;            // λ [b], likewise
    float* last;                 // e = λ τ_r [b]
    float* scale;                // Eᵀ with the mask: row j, column i >= j holds τ_i λ_j, the others 0; [b, b]
};

static inline void take_steps(Steps& steps, Carver& carver, std::int64_t batch) {
    steps.batch = batch;
    steps.token_scale = carver.take(batch);
    steps.step_size = carver.take(batch);
    steps.last = carver.take(batch);
    steps.scale = carver.take(batch * batch);
}

static inline void fill_steps(Steps& steps, std::int64_t tokens, const float* token_scale, const float* step_size,
                              std::int64_t step_stride) {
    steps.tokens = tokens;
    for (std::int64_t i = 0; i < steps.batch; ++i) {
        steps.token_scale[i] = i < tokens ? token_scale[i] : 0;
        steps.step_size[i] = i < tokens ? step_size[i * step_stride] : 0;
        steps.last[i] = i < tokens ? steps.step_size[i] * token_scale[tokens - 1] : 0;
    }
    for (std::int64_t j = 0; j < tokens; ++j)
        for (std::int64_t i = 0; i < steps.batch; ++i)
            steps.scale[j * steps.batch + i] = i < j ? 0 : steps.token_scale[i] * steps.step_size[j];
}

// Z = X W + c.
static inline void apply(float* z, const Layer& layer, const float* x, std::int64_t batch) {
    for (std::int64_t o = 0; o < layer.outputs; ++o) set(z + o * batch, layer.bias[o], batch);
    tile_product(z, batch, {layer.weight, 1, layer.padded_outputs}, x, batch, layer.outputs, batch, layer.inputs, true);
}

// dX (+)= dZ Wᵀ.
static inline void apply_transposed(float* dx, const Layer& layer, const float* dz, std::int64_t batch,
                                    bool accumulate) {
    tile_product(dx, batch, {layer.weight, layer.padded_outputs, 1}, dz, batch, layer.inputs, batch, layer.outputs,
                 accumulate);
}

// What reading leaves for its backward: row j, column i, [b, b].
struct Attended {
    float* score;     // Sᵀ: 1 + x̄_i · x_j
    float* strength;  // -Pᵀ: minus score times step
};

// Z̄ = X̄ W + c - P G.
static inline void read(float* z, const Attended& attended, const Layer& layer, const float* query, const float* key,
                        const float* gradient, const Steps& steps) {
    const std::int64_t batch = steps.batch, tokens = steps.tokens;
    set(attended.score, 1.0f, tokens * batch);
    tile_product(attended.score, batch, {key, 1, batch}, query, batch, tokens, batch, layer.inputs, true);
#pragma omp simd
    for (std::int64_t i = 0; i < tokens * batch; ++i) attended.strength[i] = -attended.score[i] * steps.scale[i];
    apply(z, layer, query, batch);
    tile_product(z, batch, {gradient, batch, 1}, attended.strength, batch, layer.outputs, batch, tokens, true);
}

// W += Xᵀ D and c += Σ D, D token-major with zeros in its padding.
static inline void add_outer(const Layer& layer, const float* x, const float* d, const Steps& steps) {
    tile_product(layer.weight, layer.padded_outputs, {x, steps.batch, 1}, d, layer.padded_outputs, layer.inputs,
                 layer.padded_outputs, steps.tokens, true);
    for (std::int64_t t = 0; t < steps.tokens; ++t) {
        const float* row = d + t * layer.padded_outputs;
#pragma omp simd
        for (std::int64_t o = 0; o < layer.padded_outputs; ++o) layer.bias[o] += row[o];
    }
}

// W' = W - (e⊙X)ᵀ G, c' = c - eᵀ G. `rows` is room for a token-major copy of G.
static inline void update(const Layer& layer, const float* x, const float* gradient, const Steps& steps, float* rows) {
    transpose(rows, layer.padded_outputs, gradient, steps.batch, layer.outputs, steps.tokens, layer.padded_outputs);
    for (std::int64_t t = 0; t < steps.tokens; ++t) {
        float* row = rows + t * layer.padded_outputs;
        const float factor = -steps.last[t];
#pragma omp simd
        for (std::int64_t o = 0; o < layer.padded_outputs; ++o) row[o] *= factor;
    }
    add_outer(layer, x, rows, steps);
}

// Room for the backward of one layer, large enough for both.
struct LayerScratch {
    float* rows;        // token-major [b, padded outputs]
    float* outputs;     // feature-major [outputs, b]
    float* score;       // dSᵀ [b, b]
    float* transposed;  // [b, b]
};

struct LayerGradients {
    float* query;     // dX̄; += where `accumulate_query`
    float* key;       // dX, overwritten
    float* gradient;  // dG, overwritten
    bool accumulate_query;
};

// Backward of `read` and `update` together. dlayer holds the gradient of the state after this mini-batch and becomes
// that of the state before it, but for what G itself owes to the state. scale_gradient (dEᵀ) and last_gradient (de) are
// +=.
static inline void read_backward(const LayerGradients& out, const Layer& dlayer, float* scale_gradient,
                                 float* last_gradient, const float* dz, const Layer& layer, const Attended& attended,
                                 const float* query, const float* key, const float* gradient, const Steps& steps,
                                 const LayerScratch& scratch) {
    const std::int64_t batch = steps.batch, tokens = steps.tokens, stride = layer.padded_outputs;
    // The update's part. F = K dW' + dc', de = -Σ G⊙F, dG = -e⊙F, dX = -(e⊙G) dW'ᵀ.
    apply(out.gradient, dlayer, key, batch);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Tokens last = load(steps.last + t);
        Tokens sum = splat(0);
        for (std::int64_t o = 0; o < layer.outputs; ++o) {
            const std::int64_t at = o * batch + t;
            const Tokens f = load(out.gradient + at), g = load(gradient + at);
            sum = sum + f * g;
            store(out.gradient + at, splat(0) - last * f);
            store(scratch.outputs + at, splat(0) - last * g);
        }
        store(last_gradient + t, load(last_gradient + t) - sum);
    }
    apply_transposed(out.key, dlayer, scratch.outputs, batch, false);

    // The reading's part. Row j, column i of dPᵀ is -G_j · dZ̄_i for i >= j.
    tile_product(scratch.score, batch, {gradient, 1, batch}, dz, batch, tokens, batch, layer.outputs, false);
    for (std::int64_t j = 0; j < tokens; ++j) {
        const float *score = attended.score + j * batch, *scale = steps.scale + j * batch;
        float *dscore = scratch.score + j * batch, *dscale = scale_gradient + j * batch;
#pragma omp simd
        for (std::int64_t i = 0; i < batch; ++i) {
            dscale[i] -= i < j ? 0.0f : dscore[i] * score[i];
            dscore[i] = -dscore[i] * scale[i];
        }
    }
    apply_transposed(out.query, layer, dz, batch, out.accumulate_query);
    tile_product(out.query, batch, {key, batch, 1}, scratch.score, batch, layer.inputs, batch, tokens, true);
    transpose(scratch.transposed, batch, scratch.score, batch, tokens, tokens, batch);
    tile_product(out.key, batch, {query, batch, 1}, scratch.transposed, batch, layer.inputs, batch, tokens, true);
    transpose(scratch.transposed, batch, attended.strength, batch, tokens, tokens, batch);
    tile_product(out.gradient, batch, {dz, batch, 1}, scratch.transposed, batch, layer.outputs, batch, tokens, true);

    transpose(scratch.rows, stride, dz, batch, layer.outputs, tokens, stride);
    add_outer(dlayer, query, scratch.rows, steps);
}

// Backward of `apply` on the keys' side: dX += dZ Wᵀ, dW += Xᵀ dZ, dc += Σ dZ.
static inline void apply_backward(float* dx, const Layer& dlayer, const float* dz, const Layer& layer, const float* x,
                                  const Steps& steps, float* rows) {
    apply_transposed(dx, layer, dz, steps.batch, true);
    transpose(rows, layer.padded_outputs, dz, steps.batch, layer.outputs, steps.tokens, layer.padded_outputs);
    add_outer(dlayer, x, rows, steps);
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
