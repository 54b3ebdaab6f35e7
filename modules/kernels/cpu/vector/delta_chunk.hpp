// The parts of the delta rule over a chunk of tokens that forward and backward share; symbols as in
// docs/gated-deltanet.md.
#pragma once

#include "kernels/cpu/vector/delta.hpp"
#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/tile.hpp"
#include "kernels/cpu/vector/ttt_layer.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// Matrices over pairs of tokens are [chunk, chunk], token i in row i. Their rows are used up to the end of the band of
// delta_block tokens that i is in; behind that, j > i, they hold nothing.
static constexpr std::int64_t chunk = delta_chunk, band = delta_block;

static inline std::int64_t end_of_band(std::int64_t i) {
    return (i / band + 1) * band;
}
static inline std::int64_t whole_blocks(std::int64_t count) {
    return (count + delta_block - 1) / delta_block * delta_block;
}
// `tokens` rows from the token `start` on; the rest of each row becomes 0.
template <class T>
static inline void load_rows(float* to, const DeltaRows<T>& from, std::int64_t start, std::int64_t tokens,
                             std::int64_t width, std::int64_t padded) {
    for (std::int64_t i = 0; i < tokens; ++i, to += padded) {
        const T* row = from.row(start + i);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) to[c] = to_float(row[c]);
        for (std::int64_t c = width; c < padded; ++c) to[c] = 0.0f;
    }
}
template <class T>
static inline void store_rows(const DeltaRows<T>& to, std::int64_t start, const float* from, std::int64_t tokens,
                              std::int64_t width, std::int64_t padded) {
    for (std::int64_t i = 0; i < tokens; ++i, from += padded) {
        T* row = to.row(start + i);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) row[c] = from_float<T>(from[c]);
    }
}

static inline void scale(float* to, const float* from, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = factor * from[i];
}
// Each row by its factor and `sign`.
static inline void scale_rows(float* to, const float* from, const float* factors, float sign, std::int64_t rows,
                              std::int64_t width) {
    for (std::int64_t i = 0; i < rows; ++i) scale(to + i * width, from + i * width, sign * factors[i], width);
}
static inline void add(float* to, const float* from, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}
// Of whole blocks.
static inline float dot(const float* a, const float* b, std::int64_t count) {
    float lanes[delta_block] = {}, sum = 0;
    for (std::int64_t i = 0; i < count; i += delta_block)
#pragma omp simd
        for (std::int64_t lane = 0; lane < delta_block; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
    for (const float lane : lanes) sum += lane;
    return sum;
}

// c [tokens, chunk] = a [tokens, k] · b [k, chunk], as far as bands are used.
static inline void pair_product(float* c, const float* a, std::int64_t a_stride, const float* b, std::int64_t tokens,
                                std::int64_t k) {
    for (std::int64_t i = 0; i < tokens; i += band)
        tile_product(c + i * chunk, chunk, {a + i * a_stride, a_stride, 1}, b, chunk, least(band, tokens - i),
                     end_of_band(i), k, false);
}
// c [tokens, n] += pairs · b, or pairsᵀ · b, of pairs that are 0 where j > i.
static inline void add_lower_product(float* c, const float* pairs, const float* b, std::int64_t tokens,
                                     std::int64_t n) {
    for (std::int64_t i = 0; i < tokens; i += band)
        tile_product(c + i * n, n, {pairs + i * chunk, chunk, 1}, b, n, least(band, tokens - i), n,
                     least(end_of_band(i), tokens), true);
}
static inline void add_upper_product(float* c, const float* pairs, const float* b, std::int64_t tokens,
                                     std::int64_t n) {
    for (std::int64_t j = 0; j < tokens; j += band)
        tile_product(c + j * n, n, {pairs + j * chunk + j, 1, chunk}, b + j * n, n, least(band, tokens - j), n,
                     tokens - j, true);
}

// What a chunk's queries and keys are to all heads that share them.
struct Shared {
    float *key, *query;    // K, Q [chunk, padded fk]
    float *gram, *scores;  // K Kᵀ, Q Kᵀ
};

static inline void take_shared(Shared& shared, Carver& carver, const DeltaGeometry& g) {
    carver.take_each(chunk * g.padded_key, shared.key, shared.query);
    carver.take_each(chunk * chunk, shared.gram, shared.scores);
}

template <class T>
static inline void fill_shared(const DeltaGeometry& g, const Shared& shared, const DeltaRows<T>& q,
                               const DeltaRows<T>& k, std::int64_t start, std::int64_t tokens, float* transposed) {
    load_rows(shared.key, k, start, tokens, g.key_width, g.padded_key);
    load_rows(shared.query, q, start, tokens, g.key_width, g.padded_key);
    transpose(transposed, chunk, shared.key, g.padded_key, tokens, g.key_width, whole_blocks(tokens));
    pair_product(shared.gram, shared.key, g.padded_key, transposed, tokens, g.key_width);
    pair_product(shared.scores, shared.query, g.padded_key, transposed, tokens, g.key_width);
}

// A head's side of a chunk.
struct Side {
    float *from_start, *to_end;  // γ_i = exp(G_i), e_i = exp(G_C - G_i)
    float whole;                 // γ_C
    float* decays;               // E_ij = exp(G_i - G_j) for j <= i, else 0
    float* between;              // -E_ij (k_i · k_j) for j < i, else 0
    float* error;                // v_i less what the state before token i, decayed, gives for k_i [chunk, padded fv]
    float* update;               // U: the error times the strength
};

static inline void take_side(Side& side, Carver& carver, const DeltaGeometry& g) {
    carver.take_each(chunk, side.from_start, side.to_end);
    carver.take_each(chunk * chunk, side.decays, side.between);
    carver.take_each(chunk * g.padded_value, side.error, side.update);
}

static inline void fill_decays(const DeltaGeometry& g, Side& side, const float* log_decay, std::int64_t tokens) {
    // G in double: after strong decays, fp32 would lose the differences of weak ones.
    double sums[chunk], sum = 0;
    for (std::int64_t i = 0; i < chunk; ++i) {
        if (i < tokens) sum += static_cast<double>(log_decay[i * g.heads]);
        sums[i] = sum;
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
        float *row = side.decays + i * chunk, differences[chunk];
        const std::int64_t end = end_of_band(i);
        for (std::int64_t j = 0; j < end; ++j) differences[j] = static_cast<float>(sums[i] - sums[j]);
#pragma omp simd
        for (std::int64_t j = 0; j < end; ++j) row[j] = j <= i ? exponential(differences[j]) : 0.0f;
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
        side.from_start[i] = exponential(static_cast<float>(sums[i]));
        side.to_end[i] = exponential(static_cast<float>(sum - sums[i]));
    }
    side.whole = exponential(static_cast<float>(sum));
}

// Rows of U from rows of errors that lack the chunk's earlier tokens: forward substitution.
static inline void substitute(const Side& side, const float* strength, std::int64_t step, std::int64_t tokens,
                              std::int64_t width) {
    constexpr std::int64_t rows = 8;
    for (std::int64_t first = 0; first < tokens; first += rows) {
        const std::int64_t last = least(first + rows, tokens);
        if (first > 0)
            tile_product(side.error + first * width, width, {side.between + first * chunk, chunk, 1}, side.update,
                         width, last - first, width, first, true);
        for (std::int64_t i = first; i < last; ++i) {
            const float factor = strength[i * step];
            for (std::int64_t c = 0; c < width; c += vector_width) {
                Vector sum = load_vector(side.error + i * width + c);
                for (std::int64_t j = first; j < i; ++j)
                    sum += side.between[i * chunk + j] * load_vector(side.update + j * width + c);
                store_vector(side.error + i * width + c, sum);
                store_vector(side.update + i * width + c, factor * sum);
            }
        }
    }
}

// From dU to dB, in its place, and the gradient of the errors without the chunk's earlier tokens, dR = β ⊙ dB: back
// substitution.
static inline void substitute_back(const Side& side, float* dupdate, float* derror, const float* strength,
                                   std::int64_t step, std::int64_t tokens, std::int64_t width) {
    constexpr std::int64_t rows = 8;
    for (std::int64_t first = (tokens - 1) / rows * rows; first >= 0; first -= rows) {
        const std::int64_t last = least(first + rows, tokens);
        if (last < tokens)
            tile_product(dupdate + first * width, width, {side.between + last * chunk + first, 1, chunk},
                         derror + last * width, width, last - first, width, tokens - last, true);
        for (std::int64_t i = last - 1; i >= first; --i) {
            const float factor = strength[i * step];
            for (std::int64_t c = 0; c < width; c += vector_width) {
                Vector sum = load_vector(dupdate + i * width + c);
                for (std::int64_t j = i + 1; j < last; ++j)
                    sum += side.between[j * chunk + i] * load_vector(derror + j * width + c);
                store_vector(dupdate + i * width + c, sum);
                store_vector(derror + i * width + c, factor * sum);
            }
        }
    }
}

// Errors and updates of the chunk's tokens, which begins at `state`.
template <class T>
static inline void fill_side(const DeltaGeometry& g, Side& side, const Shared& shared, const float* state,
                             const DeltaRows<T>& v, const float* log_decay, const float* strength, std::int64_t start,
                             std::int64_t tokens, float* scaled_key) {
    fill_decays(g, side, log_decay + start * g.heads, tokens);
    for (std::int64_t i = 0; i < tokens; ++i) {
        const float *decays = side.decays + i * chunk, *gram = shared.gram + i * chunk;
        float* between = side.between + i * chunk;
        const std::int64_t end = end_of_band(i);
#pragma omp simd
        for (std::int64_t j = 0; j < end; ++j) between[j] = j < i ? -decays[j] * gram[j] : 0.0f;
    }
    load_rows(side.error, v, start, tokens, g.value_width, g.padded_value);
    scale_rows(scaled_key, shared.key, side.from_start, -1.0f, tokens, g.padded_key);
    tile_product(side.error, g.padded_value, {scaled_key, g.padded_key, 1}, state, g.padded_value, tokens,
                 g.padded_value, g.key_width, true);
    substitute(side, strength + start * g.heads, g.heads, tokens, g.padded_value);
}

// E ⊙ x up to the ends of the bands.
static inline void decayed(float* to, const Side& side, const float* x, std::int64_t tokens) {
    for (std::int64_t i = 0; i < tokens; ++i) {
        const float *decays = side.decays + i * chunk, *from = x + i * chunk;
        const std::int64_t end = end_of_band(i);
#pragma omp simd
        for (std::int64_t j = 0; j < end; ++j) to[i * chunk + j] = j <= i ? decays[j] * from[j] : 0.0f;
    }
}

// The state behind the chunk; `after` may be `before`.
static inline void update_state(const DeltaGeometry& g, float* after, const float* before, const Side& side,
                                const Shared& shared, std::int64_t tokens, float* scaled_update) {
    scale(after, before, side.whole, g.state_count());
    scale_rows(scaled_update, side.update, side.to_end, 1.0f, tokens, g.padded_value);
    tile_product(after, g.padded_value, {shared.key, 1, g.padded_key}, scaled_update, g.padded_value, g.key_width,
                 g.padded_value, tokens, true);
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
