// Loops over flat arrays and over single rows. Outputs may be the same array as an input of the same index.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct AdamWFactors {
    float beta1, beta2, epsilon, gradient_factor;
    float step;                  // learning rate / (1 - beta1^t)
    float second_moment_factor;  // 1 / (1 - beta2^t)
    float decay;                 // 1 - learning rate · weight decay
};

struct Elementwise {
    void (*add)(float* y, const float* x, std::int64_t count);
    void (*scale)(float* y, float factor, std::int64_t count);
    void (*multiply_add)(float* y, const float* a, const float* b, std::int64_t count);  // y += a ⊙ b
    // In double, in a fixed order that depends on `count` alone.
    double (*sum)(const float* x, std::int64_t count);
    // totals [2]: the sum of squares, the number of zeros.
    void (*sum_of_squares)(double* totals, const float* x, std::int64_t count);

    void (*gelu_forward)(float* y, const float* x, std::int64_t count);
    void (*gelu_backward)(float* dx, const float* dy, const float* x, std::int64_t count);
    void (*swiglu_forward)(float* y, const float* gate, const float* up, std::int64_t count);
    void (*swiglu_backward)(float* dgate, float* dup, const float* dy, const float* gate, const float* up,
                            std::int64_t count);
    void (*gelu_gate_forward)(float* y, const float* gate, const float* x, std::int64_t count);
    void (*gelu_gate_backward)(float* dgate, float* dx, const float* dy, const float* gate, const float* x,
                               std::int64_t count);

    // One head: x [2·pairs] is turned by the angles whose cosine and sine are given; direction is 1 or -1 (back).
    void (*rotate_interleaved)(float* x, const float* cosine, const float* sine, float direction, std::int64_t pairs);
    void (*rotate_halves)(float* x, const float* cosine, const float* sine, float direction, std::int64_t pairs);

    float (*maximum)(const float* x, std::int64_t count);  // NaN is passed over; -inf for count 0
    float (*sum_of_exponentials)(const float* x, float shift, std::int64_t count);  // Σ exp(x - shift)
    void (*scaled_exponentials)(float* x, float shift, float factor,
                                std::int64_t count);  // x = factor · exp(x - shift)

    void (*adamw)(float* parameter, const float* gradient, float* first_moment, float* second_moment,
                  const AdamWFactors& factors, std::int64_t count);
};

}  // namespace lockstep::kernels::cpu
