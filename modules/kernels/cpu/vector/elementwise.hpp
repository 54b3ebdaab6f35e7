// Loops over flat arrays and single rows of type T. Outputs may alias inputs of the same index.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

struct AdamWFactors {
    float beta1, beta2, epsilon, gradient_factor;
    float step;                  // learning rate / (1 - beta1^t)
    float second_moment_factor;  // 1 / (1 - beta2^t)
    float decay;                 // 1 - learning rate · weight decay
};
struct DropoutRow {
    std::uint32_t token[2], layer[2];
    std::uint32_t threshold;  // as in kernels::Dropout
    float factor;
    std::int64_t first_column;
    bool accumulate;
};
struct MomentumFactors {
    float momentum, gradient_factor;
    float ahead_gradient, ahead_velocity;  // the step's shares of the gradient and of the new velocity
    float step;                            // learning rate
    float decay;                           // 1 - learning rate · weight decay
};

// fp32 arrays.
struct Flat {
    void (*scale)(float* y, float factor, std::int64_t count);
    // In double, in a fixed order that depends only on `count`.
    double (*sum)(const float* x, std::int64_t count);
    // totals [2]: the sum of squares, the number of zeros.
    void (*sum_of_squares)(double* totals, const float* x, std::int64_t count);
    void (*momentum_direction)(float* direction, const float* gradient, float* velocity, const MomentumFactors& factors,
                               std::int64_t count);  // step and decay do not count
};

template <class T>
struct Elementwise {
    void (*widen)(float* y, const T* x, std::int64_t count);
    void (*round)(T* y, const float* x, std::int64_t count);
    void (*add)(T* y, const T* x, std::int64_t count);
    void (*add_to)(float* y, const T* x, std::int64_t count);
    void (*add_fp32)(T* y, const float* x, std::int64_t count);
    // y += a ⊙ b
    void (*multiply_add)(float* y, const float* a, const T* b, std::int64_t count);
    void (*add_products)(float* y, const T* a, const T* b, std::int64_t count);

    void (*gelu_forward)(T* y, const T* x, std::int64_t count);
    void (*gelu_backward)(T* dx, const T* dy, const T* x, std::int64_t count);
    void (*gelu_backward_fp32)(T* dx, const float* dy, const T* x, std::int64_t count);
    void (*silu_forward)(T* y, const T* x, std::int64_t count);
    void (*silu_backward)(T* dx, const T* dy, const T* x, std::int64_t count);
    void (*swiglu_forward)(T* y, const T* gate, const T* up, std::int64_t count);
    void (*swiglu_backward)(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t count);
    void (*gelu_gate_forward)(T* y, const T* gate, const T* x, std::int64_t count);
    void (*gelu_gate_backward)(T* dgate, T* dx, const T* dy, const T* gate, const T* x, std::int64_t count);

    // One head: rotates x [2·pairs] by the angles with the given cosines and sines; direction 1 or -1 (back).
    void (*rotate_interleaved)(T* x, const float* cosine, const float* sine, float direction, std::int64_t pairs);
    void (*rotate_halves)(T* x, const float* cosine, const float* sine, float direction, std::int64_t pairs);

    float (*maximum)(const T* x, std::int64_t count);  // ignores NaN; -inf for count 0
    // No x is above shift, or one of them is NaN. Σ exp(x - shift)
    float (*sum_of_exponentials)(const T* x, float shift, std::int64_t count);
    // The same. x = factor · exp(x - shift) · (1 - (x · inverse_cap)²)
    void (*softmax_gradient)(T* x, float shift, float factor, float inverse_cap, std::int64_t count);
    void (*cap)(T* x, float cap, std::int64_t count);  // x = cap · tanh(x / cap)

    // `working` receives the new parameter, rounded; null if T is float.
    void (*adamw)(float* parameter, T* working, const float* gradient, float* first_moment, float* second_moment,
                  const AdamWFactors& factors, std::int64_t count);
    void (*momentum)(float* parameter, T* working, const float* gradient, float* velocity,
                     const MomentumFactors& factors, std::int64_t count);
    void (*step)(float* parameter, T* working, const float* direction, float step, float decay, std::int64_t count);
    void (*scaled)(T* y, const float* x, float factor, std::int64_t count);  // y = factor · x
    void (*blend)(T* y, const T* x, float y_share, float x_share, std::int64_t count);
    void (*dropout)(T* y, const T* x, const DropoutRow& row, std::int64_t columns);
};

}  // namespace lockstep::kernels::cpu
