// Pieces of the TTT inner loop over feature-major matrices [features, padded tokens]: 16 tokens at a time, one feature
// after the other.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"
#include "kernels/cpu/vector/tile.hpp"
#include "kernels/cpu/vector/ttt.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static constexpr int token_parts = static_cast<int>(ttt_block / vector_width);

// The values of 16 tokens.
struct Tokens {
    Vector part[token_parts];
};

static inline Tokens load(const float* from) {
    Tokens x;
    for (int i = 0; i < token_parts; ++i) x.part[i] = *reinterpret_cast<const Vector*>(from + i * vector_width);
    return x;
}
static inline void store(float* to, const Tokens& x) {
    for (int i = 0; i < token_parts; ++i) *reinterpret_cast<Vector*>(to + i * vector_width) = x.part[i];
}
static inline Tokens splat(float value) {
    Tokens x;
    for (int i = 0; i < token_parts; ++i) x.part[i] = Vector{} + value;
    return x;
}
static inline Tokens operator+(const Tokens& x, const Tokens& y) {
    Tokens z;
    for (int i = 0; i < token_parts; ++i) z.part[i] = x.part[i] + y.part[i];
    return z;
}
static inline Tokens operator-(const Tokens& x, const Tokens& y) {
    Tokens z;
    for (int i = 0; i < token_parts; ++i) z.part[i] = x.part[i] - y.part[i];
    return z;
}
static inline Tokens operator*(const Tokens& x, const Tokens& y) {
    Tokens z;
    for (int i = 0; i < token_parts; ++i) z.part[i] = x.part[i] * y.part[i];
    return z;
}
static inline Tokens operator*(float x, const Tokens& y) {
    Tokens z;
    for (int i = 0; i < token_parts; ++i) z.part[i] = x * y.part[i];
    return z;
}
static inline Tokens inverse_square_root(const Tokens& x) {
    alignas(64) float value[ttt_block];
    store(value, x);
    for (int i = 0; i < static_cast<int>(ttt_block); ++i) value[i] = 1.0f / sqrtf(value[i]);
    return load(value);
}

static constexpr float ttt_epsilon = 1e-6f;

typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef std::uint32_t QuadBits __attribute__((vector_size(16)));
typedef std::uint16_t HalfQuad __attribute__((vector_size(8), aligned(2), may_alias));

static inline Quad load_quad(const float* from) {
    return *reinterpret_cast<const Quad*>(from);
}
static inline Quad load_quad(const bf16* from) {
    return (Quad)(__builtin_convertvector(*reinterpret_cast<const HalfQuad*>(from), QuadBits) << 16);
}
static inline void store_quad(float* to, Quad x) {
    *reinterpret_cast<Quad*>(to) = x;
}
static inline void store_quad(bf16* to, Quad x) {
    for (int i = 0; i < 4; ++i) to[i] = from_float<bf16>(x[i]);
}

// to [columns, rows] = the transpose of from [rows, columns]; elements rows … padded_rows of each row of `to` become 0.
template <class To, class From>
static inline void transpose(To* to, std::int64_t to_stride, const From* from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t columns, std::int64_t padded_rows) {
    const std::int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (std::int64_t i = 0; i < whole_rows; i += 4) {
        for (std::int64_t j = 0; j < whole_columns; j += 4) {
            const From* source = from + i * from_stride + j;
            const Quad a = load_quad(source);
            const Quad b = load_quad(source + from_stride);
            const Quad c = load_quad(source + 2 * from_stride);
            const Quad d = load_quad(source + 3 * from_stride);
            const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            To* target = to + j * to_stride + i;
            store_quad(target, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
            store_quad(target + to_stride, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
            store_quad(target + 2 * to_stride, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
            store_quad(target + 3 * to_stride, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
        }
        for (std::int64_t j = whole_columns; j < columns; ++j)
            for (std::int64_t row = i; row < i + 4; ++row)
                to[j * to_stride + row] = from_float<To>(to_float(from[row * from_stride + j]));
    }
    for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t i = whole_rows; i < rows; ++i)
            to[j * to_stride + i] = from_float<To>(to_float(from[i * from_stride + j]));
        for (std::int64_t i = rows; i < padded_rows; ++i) to[j * to_stride + i] = from_float<To>(0);
    }
}

// z becomes X̂ = (z - ⟨z⟩)/σ. The mean is taken out before squaring: the differences of nearly equal numbers are what
// the gradients are made of.
static inline void normalise(float* z, float* inverse_deviation, std::int64_t features, std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        Tokens sum = splat(0), odd = splat(0);
        std::int64_t o = 0;
        for (; o + 2 <= features; o += 2) {
            sum = sum + load(z + o * batch + t);
            odd = odd + load(z + (o + 1) * batch + t);
        }
        if (o < features) sum = sum + load(z + o * batch + t);
        const Tokens mean = share * (sum + odd);
        Tokens squares = splat(0);
        for (o = 0; o < features; ++o) {
            const Tokens centred = load(z + o * batch + t) - mean;
            store(z + o * batch + t, centred);
            squares = squares + centred * centred;
        }
        const Tokens inverse = inverse_square_root(share * squares + splat(ttt_epsilon));
        store(inverse_deviation + t, inverse);
        for (o = 0; o < features; ++o) store(z + o * batch + t, load(z + o * batch + t) * inverse);
    }
}

// LNL2: what the keys' side of a mini-batch leaves for its backward.
struct LossTerms {
    float* normalised;         // X̂ [f, b]; in: Z
    float* difference;         // D [f, b]; in: the target T
    float* gradient;           // G [f, b]
    float* inverse_deviation;  // 1/σ [b]
    float* projection;         // ⟨U X̂⟩ [b]
};

static inline void loss_gradient(const LossTerms& terms, const float* norm_weight, const float* norm_bias,
                                 std::int64_t features, std::int64_t batch) {
    normalise(terms.normalised, terms.inverse_deviation, features, batch);
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        Tokens sum = splat(0), projected = splat(0);
        for (std::int64_t o = 0; o < features; ++o) {
            const Tokens x = load(terms.normalised + o * batch + t);
            const Tokens difference = norm_weight[o] * x + splat(norm_bias[o]) - load(terms.difference + o * batch + t);
            store(terms.difference + o * batch + t, difference);
            const Tokens u = norm_weight[o] * difference;
            store(terms.gradient + o * batch + t, u);
            sum = sum + u;
            projected = projected + u * x;
        }
        const Tokens mean = share * sum, projection = share * projected;
        const Tokens inverse = load(terms.inverse_deviation + t);
        store(terms.projection + t, projection);
        for (std::int64_t o = 0; o < features; ++o) {
            const Tokens x = load(terms.normalised + o * batch + t);
            const Tokens u = load(terms.gradient + o * batch + t);
            store(terms.gradient + o * batch + t, (u - mean - x * projection) * inverse);
        }
    }
}

// LNL2's backward. dgradient is dG and becomes dZ; ddifference receives dD = -dT. dγ and dβ are summed per lane,
// [f, b].
static inline void loss_gradient_backward(float* dgradient, float* ddifference, float* dnorm_weight, float* dnorm_bias,
                                          const LossTerms& terms, const float* norm_weight, std::int64_t features,
                                          std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Tokens inverse = load(terms.inverse_deviation + t);
        const Tokens u_projection = load(terms.projection + t);
        Tokens sum = splat(0), projected = splat(0), product = splat(0);
        for (std::int64_t o = 0; o < features; ++o) {
            const Tokens dg = load(dgradient + o * batch + t);
            const Tokens b = dg * inverse;
            sum = sum + b;
            projected = projected + b * load(terms.normalised + o * batch + t);
            product = product + dg * load(terms.gradient + o * batch + t);
        }
        const Tokens mean = share * sum, projection = share * projected;
        Tokens dx_sum = splat(0), dx_projected = splat(0);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            const Tokens x = load(terms.normalised + at), difference = load(terms.difference + at);
            const Tokens b = load(dgradient + at) * inverse;
            const Tokens du = b - mean - x * projection;
            const Tokens dd = norm_weight[o] * du;
            const Tokens u = norm_weight[o] * difference;
            const Tokens dx = norm_weight[o] * dd - b * u_projection - u * projection;
            store(ddifference + at, dd);
            store(dgradient + at, dx);
            dx_sum = dx_sum + dx;
            dx_projected = dx_projected + dx * x;
            store(dnorm_weight + at, load(dnorm_weight + at) + du * difference + dd * x);
            store(dnorm_bias + at, load(dnorm_bias + at) + dd);
        }
        const Tokens dx_mean = share * dx_sum, factor = share * (dx_projected + product);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            store(dgradient + at, (load(dgradient + at) - dx_mean - load(terms.normalised + at) * factor) * inverse);
        }
    }
}

// LayerNorm's backward at X̂ and 1/σ: dz from dy; dγ and dβ are summed per lane, [f, b].
static inline void norm_backward(float* dz, float* dnorm_weight, float* dnorm_bias, const float* dy,
                                 const float* normalised, const float* inverse_deviation, const float* norm_weight,
                                 std::int64_t features, std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        Tokens sum = splat(0), projected = splat(0);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            const Tokens d = load(dy + at), x = load(normalised + at);
            const Tokens u = norm_weight[o] * d;
            sum = sum + u;
            projected = projected + u * x;
            store(dnorm_weight + at, load(dnorm_weight + at) + d * x);
            store(dnorm_bias + at, load(dnorm_bias + at) + d);
        }
        const Tokens mean = share * sum, projection = share * projected;
        const Tokens inverse = load(inverse_deviation + t);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            store(dz + at, (norm_weight[o] * load(dy + at) - mean - load(normalised + at) * projection) * inverse);
        }
    }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
