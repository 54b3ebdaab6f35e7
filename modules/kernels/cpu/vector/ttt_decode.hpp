// Decoding token by token, for one head: rows are plain arrays over features; see ttt.hpp.
#pragma once

#include "kernels/cpu/vector/ttt_layer.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static inline float sum_of(const float* x, std::int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) sum += x[i];
    return sum;
}
static inline float dot(const float* x, const float* y, std::int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
    return sum;
}

// z = x W + c.
static inline void row_apply(float* z, const float* x, const float* weight, const float* bias, std::int64_t inputs,
                             std::int64_t outputs) {
    copy(z, bias, outputs);
    for (std::int64_t i = 0; i < inputs; ++i) {
        const float* row = weight + i * outputs;
        const float factor = x[i];
#pragma omp simd
        for (std::int64_t o = 0; o < outputs; ++o) z[o] += factor * row[o];
    }
}

// A += λ xᵀ g, a += λ g; then z = q (W - τ A) + c - τ a.
static inline void row_step(float* z, const float* query, const float* key, const float* gradient, const float* weight,
                            const float* bias, float* weight_sum, float* bias_sum, float step_size, float token_scale,
                            std::int64_t inputs, std::int64_t outputs) {
#pragma omp simd
    for (std::int64_t o = 0; o < outputs; ++o) {
        bias_sum[o] += step_size * gradient[o];
        z[o] = bias[o] - token_scale * bias_sum[o];
    }
    for (std::int64_t i = 0; i < inputs; ++i) {
        const float* row = weight + i * outputs;
        float* sum = weight_sum + i * outputs;
        const float factor = step_size * key[i], left = query[i];
#pragma omp simd
        for (std::int64_t o = 0; o < outputs; ++o) {
            sum[o] += factor * gradient[o];
            z[o] += left * (row[o] - token_scale * sum[o]);
        }
    }
}

// z becomes X̂; returns 1/σ.
static inline float row_normalise(float* z, std::int64_t count) {
    const float share = 1.0f / static_cast<float>(count), mean = share * sum_of(z, count);
#pragma omp simd
    for (std::int64_t o = 0; o < count; ++o) z[o] -= mean;
    const float inverse = 1.0f / sqrtf(share * dot(z, z, count) + ttt_epsilon);
#pragma omp simd
    for (std::int64_t o = 0; o < count; ++o) z[o] *= inverse;
    return inverse;
}

// z, the inner model's output at a key, becomes the inner loss's gradient. u is scratch for f elements.
static inline void row_loss_gradient(float* z, float* u, const float* k, const float* v, const TttDecode& task,
                                     std::int64_t count) {
    const float inverse = row_normalise(z, count), share = 1.0f / static_cast<float>(count);
    const float *weight = task.norm_weight, *bias = task.norm_bias;
#pragma omp simd
    for (std::int64_t o = 0; o < count; ++o) u[o] = weight[o] * (weight[o] * z[o] + bias[o] - (v[o] - k[o]));
    const float mean = share * sum_of(u, count), projection = share * dot(u, z, count);
#pragma omp simd
    for (std::int64_t o = 0; o < count; ++o) z[o] = (u[o] - mean - z[o] * projection) * inverse;
}

struct DecodeBuffers {
    float *q, *k, *v, *gradient, *output, *room;              // [f]
    float *input, *hidden, *slope, *hidden_gradient, *query;  // [g]
};

static inline std::int64_t take_decode(DecodeBuffers& buffers, const TttGeometry& g, float* memory) {
    Carver carver{memory, 0};
    float** const narrow[] = {&buffers.q, &buffers.k, &buffers.v, &buffers.gradient, &buffers.output, &buffers.room};
    float** const wide[] = {&buffers.input, &buffers.hidden, &buffers.slope, &buffers.hidden_gradient, &buffers.query};
    for (float** piece : narrow) *piece = carver.take(g.width);
    for (float** piece : wide) *piece = g.mlp ? carver.take(g.hidden) : nullptr;
    return carver.used;
}

static inline std::int64_t decode_scratch(const TttGeometry& g) {
    DecodeBuffers buffers;
    return take_decode(buffers, g, nullptr);
}

template <class T>
static inline void decode(const TttGeometry& g, const TttDecode& task, T* y, const T* query, const T* key,
                          const T* value, float step_size, float token_scale, float* scratch) {
    DecodeBuffers buffers;
    take_decode(buffers, g, scratch);
    const std::int64_t f = g.width, hidden = g.hidden;
    float *gradient = buffers.gradient, *output = buffers.output, *q = buffers.q, *k = buffers.k, *v = buffers.v;
#pragma omp simd
    for (std::int64_t o = 0; o < f; ++o) {
        q[o] = to_float(query[o]);
        k[o] = to_float(key[o]);
        v[o] = to_float(value[o]);
    }
    if (g.mlp) {
        row_apply(buffers.input, k, task.weight1, task.bias1, f, hidden);
#pragma omp simd
        for (std::int64_t h = 0; h < hidden; ++h) {
            buffers.hidden[h] = gelu(buffers.input[h]);
            buffers.slope[h] = gelu_derivative(buffers.input[h]);
        }
        row_apply(gradient, buffers.hidden, task.weight2, task.bias2, hidden, f);
        row_loss_gradient(gradient, buffers.room, k, v, task, f);
        for (std::int64_t h = 0; h < hidden; ++h)
            buffers.hidden_gradient[h] = dot(gradient, task.weight2 + h * f, f) * buffers.slope[h];
        row_step(buffers.query, q, k, buffers.hidden_gradient, task.weight1, task.bias1, task.weight1_sum,
                 task.bias1_sum, step_size, token_scale, f, hidden);
#pragma omp simd
        for (std::int64_t h = 0; h < hidden; ++h) buffers.query[h] = gelu(buffers.query[h]);
        row_step(output, buffers.query, buffers.hidden, gradient, task.weight2, task.bias2, task.weight2_sum,
                 task.bias2_sum, step_size, token_scale, hidden, f);
    } else {
        row_apply(gradient, k, task.weight1, task.bias1, f, f);
        row_loss_gradient(gradient, buffers.room, k, v, task, f);
        row_step(output, q, k, gradient, task.weight1, task.bias1, task.weight1_sum, task.bias1_sum, step_size,
                 token_scale, f, f);
    }
    row_normalise(output, f);
    for (std::int64_t o = 0; o < f; ++o)
        y[o] = from_float<T>(q[o] + (task.norm_weight[o] * output[o] + task.norm_bias[o]));
}

static inline void decode_commit(float* weight, float* weight_sum, float token_scale, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
        weight[i] -= token_scale * weight_sum[i];
        weight_sum[i] = 0;
    }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
