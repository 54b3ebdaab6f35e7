// Elementary functions that compilers vectorize in loops. Relative error of exponential and sigmoid at most 3e-7 in
// fp32, of hyperbolic_tangent 4e-7; the others are within a few roundings of their largest term. ±inf gives the limit,
// NaN gives NaN (so that a NaN loss is noticed). Results below the smallest normal number (1.2e-38) may be 0.
//
// Comparisons are written so that NaN falls through to the argument: do not invert them.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static inline std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

// exp(r) for |r| <= ln(2)/2.
static inline float exponential_polynomial(float r) {
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}

static inline float exponential(float x) {
    // exp(x) = 2^n exp(r), |r| <= ln(2)/2. Adding 1.5·2^23 rounds to an integer, held in the low bits.
    const float shifted = x * 1.44269504088896341f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    // 2^n as two factors, since 2^128 is not an fp32 number.
    const std::uint32_t exponent = __builtin_bit_cast(std::uint32_t, shifted) - 0x4b400000u;
    const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(exponent) >> 1);
    const float first = __builtin_bit_cast(float, (half + 127u) << 23);
    const float second = __builtin_bit_cast(float, (exponent - half + 127u) << 23);
    // Out of range the above is meaningless but harmless: cheaper than clamping x first.
    const float y = x < -87.3f ? 0.0f : exponential_polynomial(r) * first * second;
    return x > 88.73f ? __builtin_inff() : y;
}

// For |x| <= 87.5, where neither clamping nor a second factor is needed.
static inline float bounded_exponential(float x) {
    const float shifted = x * 1.44269504088896341f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const std::uint32_t exponent = __builtin_bit_cast(std::uint32_t, shifted) - (0x4b400000u - 127u);
    return exponential_polynomial(r) * __builtin_bit_cast(float, exponent << 23);
}

// For x <= 0, at half the cost.
static inline float decaying_exponential(float x) {
    return x < -87.3f ? 0.0f : bounded_exponential(x);
}

static inline float sigmoid(float x) {
    return 1.0f / (1.0f + exponential(-x));
}

static inline float hyperbolic_tangent(float x) {
    // By its series near 0, where 1 - exp(-2x) cancels; 1 in fp32 beyond 10.
    const float square = x * x;
    float series = square * (62.0f / 2835) - 17.0f / 315;
    series = series * square + 2.0f / 15;
    series = series * square - 1.0f / 3;
    series = x + x * (series * square);
    float bounded = x < -10.0f ? -10.0f : x;
    bounded = bounded > 10.0f ? 10.0f : bounded;
    const float e = bounded_exponential(-2.0f * bounded);
    return square < 0.09f ? series : (1.0f - e) / (1.0f + e);
}

// SiLU: x · s(x), s the sigmoid, which is 1 in fp32 above 17 and at most 1.7e-38 below -87, where it is taken as there.
struct SiluTerms {
    float x;         // clamped to [-87, 87]
    float s, slope;  // s(x) and s'(x) = s (1 - s), the latter without cancellation
};
static inline SiluTerms silu_terms(float x) {
    float bounded = x < -87.0f ? -87.0f : x;
    bounded = bounded > 87.0f ? 87.0f : bounded;
    const float e = bounded_exponential(-bounded);
    const float s = 1.0f / (1.0f + e);
    return {bounded, s, e * s * s};
}
static inline float silu(float x) {
    return (x < -87.0f ? -87.0f : x) * silu_terms(x).s;  // -inf · 0 would be NaN
}
static inline float silu_derivative(float x) {
    const SiluTerms t = silu_terms(x);
    return t.s + t.x * t.slope;
}

// GELU in the tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(u)) = x · s(w), s the sigmoid, w = 2u =
// 2 sqrt(2/π) (x + 0.044715 x³). Beyond |x| = 10 the sigmoid is 0 or 1 in fp32.
struct GeluTerms {
    float x;         // clamped to [-10, 10]
    float s, slope;  // s(w) and s'(w) = s (1 - s), the latter without cancellation
    float w1;        // dw/dx
};
static inline GeluTerms gelu_terms(float x) {
    float bounded = x < -10.0f ? -10.0f : x;
    bounded = bounded > 10.0f ? 10.0f : bounded;
    const float square = bounded * bounded;
    const float w = bounded * (1.5957691216057308f + 0.071354816272600252f * square);
    const float e = bounded_exponential(-w);
    const float s = 1.0f / (1.0f + e);
    return {bounded, s, e * s * s, 1.5957691216057308f + 0.21406444881780076f * square};
}
static inline float gelu(float x, const GeluTerms& t) {
    return (x < -10.0f ? -10.0f : x) * t.s;
}
static inline float gelu_derivative(const GeluTerms& t) {
    return t.s + t.x * (t.slope * t.w1);
}
static inline float gelu_second_derivative(const GeluTerms& t) {
    const float w2 = 0.42812889763560152f * t.x;  // d²w/dx²
    return t.slope * (2.0f * t.w1 + t.x * (w2 + (1.0f - 2.0f * t.s) * (t.w1 * t.w1)));
}
static inline float gelu(float x) {
    return gelu(x, gelu_terms(x));
}
static inline float gelu_derivative(float x) {
    return gelu_derivative(gelu_terms(x));
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
