// Parts of the TTT inner loop over feature-major matrices [features, padded tokens]: 16 tokens at a time, feature by
// feature.
#pragma once

#include <math.h>

#include <cstdint>

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

// Calls body(feature, chain): sums over features run in four independent chains to hide latency.
template <class Body>
LOCKSTEP_ALWAYS_INLINE void for_features(std::int64_t features, Body&& body) {
    const std::int64_t whole = features / 4 * 4;
    for (std::int64_t o = 0; o < whole; o += 4) {
        body(o, 0);
        body(o + 1, 1);
        body(o + 2, 2);
        body(o + 3, 3);
    }
    for (std::int64_t o = whole; o < features; ++o) body(o, 0);
}
static inline Tokens total(const Tokens (&sum)[4]) {
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// ⟨z⟩ and 1/σ of 16 tokens.
struct Moments {
    Tokens mean, inverse_deviation;
};

// The mean is subtracted before squaring: gradients consist of differences of nearly equal numbers.
static inline Moments moments(const float* z, std::int64_t features, std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    Tokens sum[4] = {splat(0), splat(0), splat(0), splat(0)};
    for_features(features, [&](std::int64_t o, int chain) { sum[chain] = sum[chain] + load(z + o * batch); });
    const Tokens mean = share * total(sum);
    Tokens squares[4] = {splat(0), splat(0), splat(0), splat(0)};
    for_features(features, [&](std::int64_t o, int chain) {
        const Tokens centred = load(z + o * batch) - mean;
        squares[chain] = squares[chain] + centred * centred;
    });
    return {mean, inverse_square_root(share * total(squares) + splat(ttt_epsilon))};
}

// z becomes X̂ = (z - ⟨z⟩)/σ.
static inline void normalise(float* z, float* inverse_deviation, std::int64_t features, std::int64_t batch) {
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Moments m = moments(z + t, features, batch);
        store(inverse_deviation + t, m.inverse_deviation);
        for (std::int64_t o = 0; o < features; ++o)
            store(z + o * batch + t, (load(z + o * batch + t) - m.mean) * m.inverse_deviation);
    }
}

// LNL2: what the keys' side of a mini-batch saves for its backward.
struct LossTerms {
    float* normalised;         // X̂ [f, b]; in: Z
    float* difference;         // D [f, b]; in: V
    float* gradient;           // G [f, b]
    float* inverse_deviation;  // 1/σ [b]
    float* projection;         // ⟨U X̂⟩ [b]
};

static inline void loss_gradient(const LossTerms& terms, const float* key, const float* norm_weight,
                                 const float* norm_bias, std::int64_t features, std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Moments m = moments(terms.normalised + t, features, batch);
        Tokens sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        Tokens projected[4] = {splat(0), splat(0), splat(0), splat(0)};
        for_features(features, [&](std::int64_t o, int chain) {
            const std::int64_t at = o * batch + t;
            const Tokens x = (load(terms.normalised + at) - m.mean) * m.inverse_deviation;
            const Tokens target = load(terms.difference + at) - load(key + at);
            const Tokens difference = norm_weight[o] * x + splat(norm_bias[o]) - target;
            const Tokens u = norm_weight[o] * difference;
            store(terms.normalised + at, x);
            store(terms.difference + at, difference);
            sum[chain] = sum[chain] + u;
            projected[chain] = projected[chain] + u * x;
        });
        const Tokens mean = share * total(sum), projection = share * total(projected);
        store(terms.inverse_deviation + t, m.inverse_deviation);
        store(terms.projection + t, projection);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            const Tokens u = norm_weight[o] * load(terms.difference + at);
            store(terms.gradient + at, (u - mean - load(terms.normalised + at) * projection) * m.inverse_deviation);
        }
    }
}

// LNL2's backward. dgradient is dG and becomes dZ; ddifference receives dD = -dT. dγ and dβ are summed per lane, [f,
// b].
static inline void loss_gradient_backward(float* dgradient, float* ddifference, float* dnorm_weight, float* dnorm_bias,
                                          const LossTerms& terms, const float* norm_weight, std::int64_t features,
                                          std::int64_t batch) {
    const float share = 1.0f / static_cast<float>(features);
    for (std::int64_t t = 0; t < batch; t += ttt_block) {
        const Tokens inverse = load(terms.inverse_deviation + t);
        const Tokens u_projection = load(terms.projection + t);
        Tokens sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        Tokens projected[4] = {splat(0), splat(0), splat(0), splat(0)};
        Tokens product[4] = {splat(0), splat(0), splat(0), splat(0)};
        for_features(features, [&](std::int64_t o, int chain) {
            const Tokens dg = load(dgradient + o * batch + t);
            sum[chain] = sum[chain] + dg;
            projected[chain] = projected[chain] + dg * load(terms.normalised + o * batch + t);
            product[chain] = product[chain] + dg * load(terms.gradient + o * batch + t);
        });
        const Tokens mean = share * (total(sum) * inverse), projection = share * (total(projected) * inverse);
        Tokens dx_sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        Tokens dx_projected[4] = {splat(0), splat(0), splat(0), splat(0)};
        for_features(features, [&](std::int64_t o, int chain) {
            const std::int64_t at = o * batch + t;
            const Tokens x = load(terms.normalised + at), difference = load(terms.difference + at);
            const Tokens b = load(dgradient + at) * inverse;
            const Tokens du = b - mean - x * projection;
            const Tokens dd = norm_weight[o] * du;
            const Tokens u = norm_weight[o] * difference;
            const Tokens dx = norm_weight[o] * dd - b * u_projection - u * projection;
            store(ddifference + at, dd);
            store(dgradient + at, dx);
            dx_sum[chain] = dx_sum[chain] + dx;
            dx_projected[chain] = dx_projected[chain] + dx * x;
            store(dnorm_weight + at, load(dnorm_weight + at) + du * difference + dd * x);
            store(dnorm_bias + at, load(dnorm_bias + at) + dd);
        });
        const Tokens dx_mean = share * total(dx_sum), factor = share * (total(dx_projected) + total(product));
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
        Tokens sum[4] = {splat(0), splat(0), splat(0), splat(0)};
        Tokens projected[4] = {splat(0), splat(0), splat(0), splat(0)};
        for_features(features, [&](std::int64_t o, int chain) {
            const std::int64_t at = o * batch + t;
            const Tokens d = load(dy + at), x = load(normalised + at);
            const Tokens u = norm_weight[o] * d;
            sum[chain] = sum[chain] + u;
            projected[chain] = projected[chain] + u * x;
            store(dnorm_weight + at, load(dnorm_weight + at) + d * x);
            store(dnorm_bias + at, load(dnorm_bias + at) + d);
        });
        const Tokens mean = share * total(sum), projection = share * total(projected);
        const Tokens inverse = load(inverse_deviation + t);
        for (std::int64_t o = 0; o < features; ++o) {
            const std::int64_t at = o * batch + t;
            store(dz + at, (norm_weight[o] * load(dy + at) - mean - load(normalised + at) * projection) * inverse);
        }
    }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
