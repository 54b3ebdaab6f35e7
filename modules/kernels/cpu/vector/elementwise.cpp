#include "kernels/cpu/vector/elementwise.hpp"

#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

void scale(float* y, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] *= factor;
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

template <class T>
void widen(float* y, const T* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = to_float(x[i]);
}

template <class T>
void round(T* y, const float* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(x[i]);
}

// y += x, with different types.
template <class Y, class X>
void add(Y* y, const X* x, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<Y>(to_float(y[i]) + to_float(x[i]));
}

template <class A, class B>
void multiply_add(float* y, const A* a, const B* b, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] += to_float(a[i]) * to_float(b[i]);
}

// Loops with exponentials run over fp32 blocks: with half-width loads and stores in the same loop, compilers unroll it
// beyond the available registers.
constexpr std::int64_t block = 256;

template <class T>
struct Block {
    alignas(64) float room[block];
    const float* load(const T* x, std::int64_t count) {
        widen(room, x, count);
        return room;
    }
    float* to_store(T*) { return room; }
    void store(T* y, std::int64_t count) { round(y, room, count); }
};
template <>
struct Block<float> {
    const float* load(const float* x, std::int64_t) { return x; }
    float* to_store(float* y) { return y; }
    void store(float*, std::int64_t) {}
};

// body(from, count) over blocks.
template <class Body>
void for_blocks(std::int64_t count, Body body) {
    for (std::int64_t from = 0; from < count; from += block) body(from, count - from < block ? count - from : block);
}

template <class T, class Function>
void map(T* y, const T* x, std::int64_t count, Function function) {
    for_blocks(count, [&](std::int64_t from, std::int64_t some) {
        Block<T> in, out;
        const float* a = in.load(x + from, some);
        float* to = out.to_store(y + from);
#pragma omp simd
        for (std::int64_t i = 0; i < some; ++i) to[i] = function(a[i]);
        out.store(y + from, some);
    });
}

template <class T, class X1, class Function>
void map(T* y, const X1* x1, const T* x2, std::int64_t count, Function function) {
    for_blocks(count, [&](std::int64_t from, std::int64_t some) {
        Block<X1> in1;
        Block<T> in2, out;
        const float *a = in1.load(x1 + from, some), *b = in2.load(x2 + from, some);
        float* to = out.to_store(y + from);
#pragma omp simd
        for (std::int64_t i = 0; i < some; ++i) to[i] = function(a[i], b[i]);
        out.store(y + from, some);
    });
}

// function(a, b, c, first, second) sets the elements of both outputs.
template <class T, class Function>
void map(T* y1, T* y2, const T* x1, const T* x2, const T* x3, std::int64_t count, Function function) {
    for_blocks(count, [&](std::int64_t from, std::int64_t some) {
        Block<T> in1, in2, in3, out1, out2;
        const float *a = in1.load(x1 + from, some), *b = in2.load(x2 + from, some), *c = in3.load(x3 + from, some);
        float *to1 = out1.to_store(y1 + from), *to2 = out2.to_store(y2 + from);
#pragma omp simd
        for (std::int64_t i = 0; i < some; ++i) function(a[i], b[i], c[i], to1[i], to2[i]);
        out1.store(y1 + from, some);
        out2.store(y2 + from, some);
    });
}

template <class T>
void gelu_forward(T* y, const T* x, std::int64_t count) {
    map(y, x, count, [](float v) { return gelu(v); });
}

template <class T, class Gradient>
void gelu_backward(T* dx, const Gradient* dy, const T* x, std::int64_t count) {
    map(dx, dy, x, count, [](float d, float v) { return d * gelu_derivative(v); });
}

template <class T>
void silu_forward(T* y, const T* x, std::int64_t count) {
    map(y, x, count, [](float v) { return silu(v); });
}

template <class T>
void silu_backward(T* dx, const T* dy, const T* x, std::int64_t count) {
    map(dx, dy, x, count, [](float d, float v) { return d * silu_derivative(v); });
}

template <class T>
void swiglu_forward(T* y, const T* gate, const T* up, std::int64_t count) {
    map(y, gate, up, count, [](float g, float u) { return silu(g) * u; });
}

template <class T>
void swiglu_backward(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t count) {
    map(dgate, dup, dy, gate, up, count, [](float d, float g, float u, float& to_gate, float& to_up) {
        to_gate = d * u * silu_derivative(g);
        to_up = d * silu(g);
    });
}

template <class T>
void gelu_gate_forward(T* y, const T* gate, const T* x, std::int64_t count) {
    map(y, gate, x, count, [](float g, float v) { return gelu(g) * v; });
}

template <class T>
void gelu_gate_backward(T* dgate, T* dx, const T* dy, const T* gate, const T* x, std::int64_t count) {
    map(dgate, dx, dy, gate, x, count, [](float d, float g, float v, float& to_gate, float& to_x) {
        to_gate = d * v * gelu_derivative(g);
        to_x = d * gelu(g);
    });
}

template <class T>
void rotate_interleaved(T* x, const float* cosine, const float* sine, float direction, std::int64_t pairs) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float first = to_float(x[2 * i]), second = to_float(x[2 * i + 1]), s = direction * sine[i];
        x[2 * i] = from_float<T>(first * cosine[i] - second * s);
        x[2 * i + 1] = from_float<T>(second * cosine[i] + first * s);
    }
}

template <class T>
void rotate_halves(T* x, const float* cosine, const float* sine, float direction, std::int64_t pairs) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float first = to_float(x[i]), second = to_float(x[pairs + i]), s = direction * sine[i];
        x[i] = from_float<T>(first * cosine[i] - second * s);
        x[pairs + i] = from_float<T>(second * cosine[i] + first * s);
    }
}

// Explicit lanes, several per vector, since each comparison waits for the one before: compilers must not reorder a
// maximum that may meet a NaN.
float maximum(const float* x, std::int64_t count) {
    constexpr std::int64_t lanes = 64;
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
// As integers: the bits of numbers below zero are inverted to be in order. NaN lies beyond both infinities.
float maximum(const bf16* x, std::int64_t count) {
    const auto ordered = [](std::int16_t bits) { return static_cast<std::int16_t>(bits ^ ((bits >> 15) & 0x7fff)); };
    const std::int16_t infinity = 0x7f80, lowest = ordered(static_cast<std::int16_t>(0xff80));
    std::int16_t largest = lowest;
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int16_t key = ordered(static_cast<std::int16_t>(x[i].bits));
        const std::int16_t number = key > infinity ? lowest : key;
        largest = number > largest ? number : largest;
    }
    return to_float(bf16{static_cast<std::uint16_t>(ordered(largest))});
}

float sum_of_exponentials(const float* x, float shift, std::int64_t count) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t i = 0; i < count; ++i) total += decaying_exponential(x[i] - shift);
    return total;
}
float sum_of_exponentials(const bf16* x, float shift, std::int64_t count) {
    float total = 0;
    for_blocks(count, [&](std::int64_t from, std::int64_t some) {
        Block<bf16> in;
        total += sum_of_exponentials(in.load(x + from, some), shift, some);
    });
    return total;
}

template <class T>
void softmax_gradient(T* x, float shift, float factor, float inverse_cap, std::int64_t count) {
    const bool capped = inverse_cap > 0.0f;
    map(x, x, count, [=](float v) {
        const float share = v * inverse_cap;
        const float slope = capped ? 1.0f - share * share : 1.0f;  // v may be -inf without a cap
        return factor * decaying_exponential(v - shift) * slope;
    });
}

template <class T>
void cap(T* x, float cap, std::int64_t count) {
    const float inverse_cap = 1.0f / cap;
    map(x, x, count, [=](float v) { return cap * hyperbolic_tangent(v * inverse_cap); });
}

template <class T>
void adamw(float* parameter, T* working, const float* gradient, float* first_moment, float* second_moment,
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
        const float updated = parameter[i] * f.decay - f.step * (m / deviation);
        parameter[i] = updated;
        if constexpr (sizeof(T) != sizeof(float)) working[i] = from_float<T>(updated);
    }
}

template <class T>
void momentum(float* parameter, T* working, const float* gradient, float* velocity, const MomentumFactors& factors,
              std::int64_t count) {
    const MomentumFactors f = factors;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[i] * f.gradient_factor;
        const float v = f.momentum * velocity[i] + g;
        velocity[i] = v;
        const float updated = parameter[i] * f.decay - f.step * (f.ahead_gradient * g + f.ahead_velocity * v);
        parameter[i] = updated;
        if constexpr (sizeof(T) != sizeof(float)) working[i] = from_float<T>(updated);
    }
}

void momentum_direction(float* direction, const float* gradient, float* velocity, const MomentumFactors& factors,
                        std::int64_t count) {
    const MomentumFactors f = factors;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[i] * f.gradient_factor;
        const float v = f.momentum * velocity[i] + g;
        velocity[i] = v;
        direction[i] = f.ahead_gradient * g + f.ahead_velocity * v;
    }
}

template <class T>
void step(float* parameter, T* working, const float* direction, float step, float decay, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        const float updated = parameter[i] * decay - step * direction[i];
        parameter[i] = updated;
        if constexpr (sizeof(T) != sizeof(float)) working[i] = from_float<T>(updated);
    }
}

template <class T>
void scaled(T* y, const float* x, float factor, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(factor * x[i]);
}

template <class T>
void blend(T* y, const T* x, float y_share, float x_share, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(y_share * to_float(y[i]) + x_share * to_float(x[i]));
}

// Columns whose random bits are computed together: 8 by each of 16 generators.
constexpr std::int64_t dropout_group = 128;

// Factors on the columns from `group` · dropout_group on: 0 or row.factor. Philox4x32-10, as base/random.cpp has it.
void dropout_factors(float* factors, const DropoutRow& row, std::int64_t group) {
    constexpr int generators = dropout_group / 8;
    const std::uint32_t threshold = row.threshold;
    const float factor = row.factor;
    std::uint32_t words[4 * generators];
    const auto first = static_cast<std::uint32_t>(group * generators);
#pragma omp simd
    for (int g = 0; g < generators; ++g) {
        std::uint32_t a = first + static_cast<std::uint32_t>(g), b = 0, c = row.layer[0], d = row.layer[1];
        std::uint32_t key0 = row.token[0], key1 = row.token[1];
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t product0 = std::uint64_t{0xD2511F53} * a, product1 = std::uint64_t{0xCD9E8D57} * c;
            a = static_cast<std::uint32_t>(product1 >> 32) ^ b ^ key0;
            b = static_cast<std::uint32_t>(product1);
            c = static_cast<std::uint32_t>(product0 >> 32) ^ d ^ key1;
            d = static_cast<std::uint32_t>(product0);
            key0 += 0x9E3779B9;
            key1 += 0xBB67AE85;
        }
        words[4 * g] = a;
        words[4 * g + 1] = b;
        words[4 * g + 2] = c;
        words[4 * g + 3] = d;
    }
#pragma omp simd
    for (int w = 0; w < 4 * generators; ++w) {
        factors[2 * w] = (words[w] & 0xFFFF) < threshold ? 0.0f : factor;
        factors[2 * w + 1] = (words[w] >> 16) < threshold ? 0.0f : factor;
    }
}

template <class T>
void dropout(T* y, const T* x, const DropoutRow& row, std::int64_t columns) {
    alignas(64) float factors[dropout_group];
    for (std::int64_t column = 0; column < columns;) {
        const std::int64_t place = row.first_column + column, skipped = place & (dropout_group - 1);
        const std::int64_t rest = dropout_group - skipped, some = columns - column < rest ? columns - column : rest;
        dropout_factors(factors, row, place / dropout_group);
        const float* factor = factors + skipped;
        T* to = y + column;
        const T* from = x + column;
        if (row.accumulate) {
#pragma omp simd
            for (std::int64_t i = 0; i < some; ++i)
                to[i] = from_float<T>(to_float(to[i]) + factor[i] * to_float(from[i]));
        } else {
#pragma omp simd
            for (std::int64_t i = 0; i < some; ++i) to[i] = from_float<T>(factor[i] * to_float(from[i]));
        }
        column += some;
    }
}

template <class T>
constexpr Elementwise<T> table() {
    return {widen<T>,
            round<T>,
            add<T, T>,
            add<float, T>,
            add<T, float>,
            multiply_add<float, T>,
            multiply_add<T, T>,
            gelu_forward<T>,
            gelu_backward<T, T>,
            gelu_backward<T, float>,
            silu_forward<T>,
            silu_backward<T>,
            swiglu_forward<T>,
            swiglu_backward<T>,
            gelu_gate_forward<T>,
            gelu_gate_backward<T>,
            rotate_interleaved<T>,
            rotate_halves<T>,
            maximum,
            sum_of_exponentials,
            softmax_gradient<T>,
            cap<T>,
            adamw<T>,
            momentum<T>,
            step<T>,
            scaled<T>,
            blend<T>,
            dropout<T>};
}

}  // namespace

constinit const Flat flat_functions = {scale, sum, sum_of_squares, momentum_direction};

constinit const Elementwise<float> elementwise_fp32 = table<float>();
constinit const Elementwise<bf16> elementwise_bf16 = table<bf16>();

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
