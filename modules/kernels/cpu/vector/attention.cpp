#include "kernels/cpu/vector/attention.hpp"

#include "kernels/cpu/vector/math.hpp"
#include "kernels/cpu/vector/tile.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

constexpr std::int64_t query_tile = Attention::query_tile;
constexpr std::int64_t key_tile = Attention::key_tile;

std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

// Queries of a tile are padded to whole pairs of vectors.
std::int64_t lanes_for(std::int64_t count) {
    const std::int64_t step = 2 * vector_width;
    return (count + step - 1) / step * step;
}

std::int64_t forward_scratch(std::int64_t width) {
    return query_tile * (width + key_tile + 3);
}
std::int64_t backward_scratch(std::int64_t width) {
    return query_tile * (2 * width + 2 * key_tile + 2);
}

// transposed [width, lanes] from `count` rows; the lanes beyond are zero.
void pack_transposed(float* transposed, const float* rows, std::int64_t stride, std::int64_t count, std::int64_t lanes,
                     std::int64_t width) {
    for (std::int64_t c = 0; c < width; ++c) {
        float* line = transposed + c * lanes;
        for (std::int64_t i = 0; i < count; ++i) line[i] = rows[i * stride + c];
        for (std::int64_t i = count; i < lanes; ++i) line[i] = 0.0f;
    }
}

// Of the queries from `first` on, the leading ones that do not see key `key`.
std::int64_t blind_queries(const AttentionHead& head, std::int64_t first, std::int64_t key, std::int64_t lanes) {
    const std::int64_t blind = key - (head.key_length - head.query_length) - first;
    return blind < 0 ? 0 : least(blind, lanes);
}

// One query: every product is with a vector, so lanes run over the width instead.
void forward_single(const AttentionHead& head, float* y, float* log_sum_exp, std::int64_t query, float* scores) {
    const float* q = head.q + query * head.query_stride;
    float* out = y + query * head.query_stride;
    const std::int64_t width = head.width, seen = query + head.key_length - head.query_length + 1;
    float highest = -__builtin_inff(), total = 0;
    for (std::int64_t c = 0; c < width; ++c) out[c] = 0.0f;
    for (std::int64_t from = 0; from < seen; from += key_tile) {
        const std::int64_t keys = least(key_tile, seen - from);
        float raised = highest;
        for (std::int64_t j = 0; j < keys; ++j) {
            const float* k = head.k + (from + j) * head.key_stride;
            float score = 0;
#pragma omp simd reduction(+ : score)
            for (std::int64_t c = 0; c < width; ++c) score += q[c] * k[c];
            scores[j] = score * head.scale;
            raised = scores[j] > raised ? scores[j] : raised;
        }
        const float correction = exponential(highest - raised);
        float added = 0;
#pragma omp simd reduction(+ : added)
        for (std::int64_t j = 0; j < keys; ++j) {
            scores[j] = exponential(scores[j] - raised);
            added += scores[j];
        }
        total = total * correction + added;
        highest = raised;
        if (from > 0)
            for (std::int64_t c = 0; c < width; ++c) out[c] *= correction;
        tile_product(out, width, {scores, key_tile, 1}, head.v + from * head.key_stride, head.key_stride, 1, width,
                     keys, true);
    }
    const float inverse = 1.0f / total;
    for (std::int64_t c = 0; c < width; ++c) out[c] *= inverse;
    log_sum_exp[query] = highest + __builtin_logf(total);
}

void forward(const AttentionHead& head, float* y, float* log_sum_exp, std::int64_t first, std::int64_t count,
             float* scratch) {
    if (count == 1) return forward_single(head, y, log_sum_exp, first, scratch);
    const std::int64_t width = head.width, lanes = lanes_for(count), stride = head.query_stride;
    float* queries = scratch;                    // [width, lanes]
    float* scores = queries + width * lanes;     // [key_tile, lanes]
    float* highest = scores + key_tile * lanes;  // [lanes]: of the scores so far
    float* total = highest + lanes;              // Σ exp(score - highest)
    float* correction = total + lanes;
    pack_transposed(queries, head.q + first * stride, stride, count, lanes, width);
    for (std::int64_t i = 0; i < lanes; ++i) {
        highest[i] = -__builtin_inff();
        total[i] = 0.0f;
    }
    const std::int64_t offset = head.key_length - head.query_length, seen = first + count + offset;
    for (std::int64_t from = 0; from < seen; from += key_tile) {
        const std::int64_t keys = least(key_tile, seen - from);
        tile_product(scores, lanes, {head.k + from * head.key_stride, head.key_stride, 1}, queries, lanes, keys, lanes,
                     width, false);
        for (std::int64_t i = 0; i < lanes; ++i) correction[i] = highest[i];
        for (std::int64_t j = 0; j < keys; ++j) {
            float* line = scores + j * lanes;
            const std::int64_t blind = blind_queries(head, first, from + j, lanes);
            for (std::int64_t i = 0; i < blind; ++i) line[i] = -__builtin_inff();
#pragma omp simd
            for (std::int64_t i = 0; i < lanes; ++i) {
                line[i] *= head.scale;
                highest[i] = line[i] > highest[i] ? line[i] : highest[i];
            }
        }
#pragma omp simd
        for (std::int64_t i = 0; i < lanes; ++i) {
            correction[i] = exponential(correction[i] - highest[i]);
            total[i] *= correction[i];
        }
        for (std::int64_t j = 0; j < keys; ++j) {
            float* line = scores + j * lanes;
#pragma omp simd
            for (std::int64_t i = 0; i < lanes; ++i) {
                line[i] = exponential(line[i] - highest[i]);
                total[i] += line[i];
            }
        }
        if (from > 0)
            for (std::int64_t i = 0; i < count; ++i) {
                float* out = y + (first + i) * stride;
                const float factor = correction[i];
                for (std::int64_t c = 0; c < width; ++c) out[c] *= factor;
            }
        tile_product(y + first * stride, stride, {scores, 1, lanes}, head.v + from * head.key_stride, head.key_stride,
                     count, width, keys, from > 0);
    }
    for (std::int64_t i = 0; i < count; ++i) {
        float* out = y + (first + i) * stride;
        const float inverse = 1.0f / total[i];
        for (std::int64_t c = 0; c < width; ++c) out[c] *= inverse;
        log_sum_exp[first + i] = highest[i] + __builtin_logf(total[i]);
    }
}

// P = exp(scale K Qᵀ - log_sum_exp), dV += P dY, dP = V dYᵀ, dS = scale P ⊙ (dP - Σ_c dy y), dK += dS Q, dQ += dSᵀ K.
void backward(const AttentionHead& head, float* dq, float* dk, float* dv, const float* dy, const float* y,
              const float* log_sum_exp, float* scratch) {
    const std::int64_t width = head.width, stride = head.query_stride, key_stride = head.key_stride;
    for (std::int64_t first = 0; first < head.query_length; first += query_tile) {
        const std::int64_t count = least(query_tile, head.query_length - first), lanes = lanes_for(count);
        float* queries = scratch;                          // [width, lanes]
        float* output_gradient = queries + width * lanes;  // [width, lanes]
        float* weights = output_gradient + width * lanes;  // P [key_tile, lanes]
        float* gradient = weights + key_tile * lanes;      // dP, then dS [key_tile, lanes]
        float* along = gradient + key_tile * lanes;        // [lanes]: Σ_c dy y
        float* level = along + lanes;                      // [lanes]: log_sum_exp
        const float* q_rows = head.q + first * stride;
        const float* dy_rows = dy + first * stride;
        pack_transposed(queries, q_rows, stride, count, lanes, width);
        pack_transposed(output_gradient, dy_rows, stride, count, lanes, width);
        for (std::int64_t i = 0; i < lanes; ++i) along[i] = level[i] = 0.0f;
        for (std::int64_t i = 0; i < count; ++i) {
            const float* out = y + (first + i) * stride;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (std::int64_t c = 0; c < width; ++c) sum += dy_rows[i * stride + c] * out[c];
            along[i] = sum;
            level[i] = log_sum_exp[first + i];
        }
        const std::int64_t seen = first + count;
        for (std::int64_t from = 0; from < seen; from += key_tile) {
            const std::int64_t keys = least(key_tile, seen - from);
            const float* k_rows = head.k + from * key_stride;
            tile_product(weights, lanes, {k_rows, key_stride, 1}, queries, lanes, keys, lanes, width, false);
            tile_product(gradient, lanes, {head.v + from * key_stride, key_stride, 1}, output_gradient, lanes, keys,
                         lanes, width, false);
            for (std::int64_t j = 0; j < keys; ++j) {
                float* p = weights + j * lanes;
                float* ds = gradient + j * lanes;
#pragma omp simd
                for (std::int64_t i = 0; i < lanes; ++i) {
                    p[i] = exponential(head.scale * p[i] - level[i]);
                    ds[i] = head.scale * p[i] * (ds[i] - along[i]);
                }
                const std::int64_t blind = blind_queries(head, first, from + j, lanes);
                for (std::int64_t i = 0; i < blind; ++i) p[i] = ds[i] = 0.0f;
            }
            tile_product(dv + from * key_stride, key_stride, {weights, lanes, 1}, dy_rows, stride, keys, width, count,
                         true);
            tile_product(dk + from * key_stride, key_stride, {gradient, lanes, 1}, q_rows, stride, keys, width, count,
                         true);
            tile_product(dq + first * stride, stride, {gradient, 1, lanes}, k_rows, key_stride, count, width, keys,
                         from > 0);
        }
    }
}

}  // namespace

constinit const Attention attention_functions = {forward_scratch, backward_scratch, forward, backward};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
