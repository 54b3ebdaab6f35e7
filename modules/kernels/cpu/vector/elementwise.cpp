#include "kernels/cpu/vector/elementwise.hpp"

#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

void add(float* y, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += x[i];
}

void scale(float* y, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] *= factor;
}

void multiply_add(float* y, const float* a, const float* b, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += a[i] * b[i];
}

double sum(const float* x, std::int64_t count) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]);
    return total;
}

void sum_of_squares(double* totals, const float* x, std::int64_t count) {
    double squares = 0, zeros = 0;
#pragma omp simd reduction(+ : squares, zeros)
    for (std::int64_t i = 0; i < count; ++i) {
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        zeros += x[i] == 0.0f ? 1.0 : 0.0;
    }
    totals[0] = squares;
    totals[1] = zeros;
}

void gelu_forward(float* y, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = gelu(x[i]);
}

void gelu_backward(float* dx, const float* dy, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_derivative(x[i]);
}

void swiglu_forward(float* y, const float* gate, const float* up, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = silu(gate[i]) * up[i];
}

void swiglu_backward(float* dgate, float* dup, const float* dy, const float* gate, const float* up,
                     std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gate[i], u = up[i], d = dy[i];
        dgate[i] = d * u * silu_derivative(g);
        dup[i] = d * silu(g);
    }
}

void gelu_gate_forward(float* y, const float* gate, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = gelu(gate[i]) * x[i];
}

void gelu_gate_backward(float* dgate, float* dx, const float* dy, const float* gate, const float* x,
                        std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gate[i], value = x[i], d = dy[i];
        dgate[i] = d * value * gelu_derivative(g);
        dx[i] = d * gelu(g);
    }
}

void rotate_interleaved(float* x, const float* cosine, const float* sine, float direction, std::int64_t pairs) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float first = x[2 * i], second = x[2 * i + 1], s = direction * sine[i];
        x[2 * i] = first * cosine[i] - second * s;
        x[2 * i + 1] = second * cosine[i] + first * s;
    }
}

void rotate_halves(float* x, const float* cosine, const float* sine, float direction, std::int64_t pairs) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float first = x[i], second = x[pairs + i], s = direction * sine[i];
        x[i] = first * cosine[i] - second * s;
        x[pairs + i] = second * cosine[i] + first * s;
    }
}

// Lanes by hand: compilers must not reorder a maximum that may meet a NaN.
float maximum(const float* x, std::int64_t count) {
    constexpr std::int64_t lanes = 16;
    float largest[lanes];
    for (std::int64_t lane = 0; lane < lanes; ++lane) largest[lane] = -__builtin_inff();
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::int64_t lane = 0; lane < lanes; ++lane)
            largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
    for (; i < count; ++i) largest[0] = x[i] > largest[0] ? x[i] : largest[0];
    for (std::int64_t lane = 1; lane < lanes; ++lane)
        largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
    return largest[0];
}

float sum_of_exponentials(const float* x, float shift, std::int64_t count) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i) total += exponential(x[i] - shift);
    return total;
}

void scaled_exponentials(float* x, float shift, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) x[i] = factor * exponential(x[i] - shift);
}

void adamw(float* parameter, const float* gradient, float* first_moment, float* second_moment,
           const AdamWFactors& factors, std::int64_t count) {
    const AdamWFactors f = factors;
    const float rest1 = 1.0f - f.beta1, rest2 = 1.0f - f.beta2;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[i] * f.gradient_factor;
        const float m = f.beta1 * first_moment[i] + rest1 * g;
        const float v = f.beta2 * second_moment[i] + rest2 * (g * g);
        first_moment[i] = m;
        second_moment[i] = v;
        const float deviation = __builtin_sqrtf(v * f.second_moment_factor) + f.epsilon;
        parameter[i] = parameter[i] * f.decay - f.step * (m / deviation);
    }
}

}  // namespace

constinit const Elementwise elementwise_functions = {add,
                                                     scale,
                                                     multiply_add,
                                                     sum,
                                                     sum_of_squares,
                                                     gelu_forward,
                                                     gelu_backward,
                                                     swiglu_forward,
                                                     swiglu_backward,
                                                     gelu_gate_forward,
                                                     gelu_gate_backward,
                                                     rotate_interleaved,
                                                     rotate_halves,
                                                     maximum,
                                                     sum_of_exponentials,
                                                     scaled_exponentials,
                                                     adamw};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
