// Elementary functions in fp32. ±inf gives the limit (but see gelu_curve), NaN gives NaN: comparisons are written so
// that NaN falls through to the argument.
#pragma once

#include "kernels/cuda/hardware.hpp"

namespace lockstep::kernels::cuda {

constexpr float log2_e = 1.44269504088896341f;

__device__ inline float exponential(float x) {
    return fast_exp2(x * log2_e);
}

__device__ inline float sigmoid(float x) {
    return 1.0f / (1.0f + fast_exp2(-log2_e * x));
}

// SiLU: x · sigmoid(x).
__device__ inline float silu(float x) {
    const float bounded = x < -88.0f ? -88.0f : x;  // -inf · 0 would be NaN
    return bounded * sigmoid(bounded);
}

struct WithDerivative {
    float value, derivative;
};
__device__ inline WithDerivative silu_with_derivative(float x) {
    float bounded = x < -88.0f ? -88.0f : x;
    const float from_below = bounded;
    bounded = bounded > 88.0f ? 88.0f : bounded;
    const float e = fast_exp2(-log2_e * bounded), s = 1.0f / (1.0f + e);
    return {from_below * s, s + bounded * (e * s * s)};
}

// GELU in the tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(u)) = x · s(w), s the sigmoid, w = 2u =
// 2 sqrt(2/π) (x + 0.044715 x³). Beyond |x| = 10 the sigmoid is 0 or 1 in fp32.
__device__ inline WithDerivative gelu_with_derivative(float x) {
    const float from_below = x < -10.0f ? -10.0f : x;
    const float bounded = from_below > 10.0f ? 10.0f : from_below;
    const float square = bounded * bounded;
    const float e = fast_exp2(bounded * (-log2_e * 1.5957691216057308f + -log2_e * 0.071354816272600252f * square));
    const float s = 1.0f / (1.0f + e);
    const float slope = e * s * s;  // s (1 - s) without cancellation
    return {from_below * s, s + bounded * (slope * (1.5957691216057308f + 0.21406444881780076f * square))};
}
__device__ inline float gelu(float x) {
    return gelu_with_derivative(x).value;
}

// φ, φ' and φ'' of the same GELU from one exponential and one reciprocal. The latter is good to 1 ulp, and 1 - s
// cancels where s is near 1: for values that are then rounded to 16 bits. x is not bounded, which would take four
// more instructions if NaN is to stay: beyond 1.8e19, where x² overflows, the derivatives are NaN, and at -inf all are.
struct GeluCurve {
    float value, slope, curvature;
};
__device__ inline GeluCurve gelu_curve(float x) {
    constexpr float linear = 1.5957691216057308f, cubic = 0.071354816272600252f;  // w = linear x + cubic x³
    const float square = x * x;
    const float s = fast_reciprocal(1.0f + fast_exp2(x * fmaf(square, -log2_e * cubic, -log2_e * linear)));
    const float ds = fmaf(-s, s, s), dw = fmaf(square, 3 * cubic, linear);
    const float x_ds = x * ds;  // first: 0 far from 0, whatever it is multiplied with
    return {x * s, fmaf(x_ds, dw, s),
            fmaf(x_ds * dw * dw, fmaf(-2.0f, s, 1.0f), ds * fmaf(square, 12 * cubic, 2 * linear))};
}

}  // namespace lockstep::kernels::cuda
