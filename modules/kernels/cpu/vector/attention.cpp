#include "kernels/cpu/vector/attention.hpp"

#include "kernels/cpu/vector/attention_parts.hpp"
#include "kernels/cpu/vector/tile.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

constexpr std::int64_t query_tile = attention_query_tile, key_tile = attention_key_tile;

// Queries of a tile are padded to whole pairs of vectors.
std::int64_t lanes_for(std::int64_t count) {
    const std::int64_t step = 2 * vector_width;
    return (count + step - 1) / step * step;
}

// Buffer for rows of T widened to fp32; none for float.
template <class T>
constexpr std::int64_t widened(std::int64_t count) {
    return sizeof(T) == sizeof(float) ? 0 : count;
}

template <class T>
std::int64_t forward_scratch(std::int64_t, std::int64_t width) {
    return query_tile * (width + key_tile + 3) + widened<T>((query_tile + 2 * key_tile) * width);
}
template <class T>
std::int64_t backward_scratch(std::int64_t, std::int64_t width) {
    return query_tile * (2 * width + 2 * key_tile + 2) + widened<T>((3 * query_tile + 2 * key_tile) * width);
}

struct Rows {
    const float* data;
    std::int64_t stride;
};
// `count` rows as fp32: in place, or copied to `room`, which then moves past the copy.
Rows rows_of(const float* rows, std::int64_t stride, std::int64_t, std::int64_t, float*&) {
    return {rows, stride};
}
Rows rows_of(const bf16* rows, std::int64_t stride, std::int64_t count, std::int64_t width, float*& room) {
    float* copy = room;
    room += count * width;
    for (std::int64_t i = 0; i < count; ++i)
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) copy[i * width + c] = to_float(rows[i * stride + c]);
    return {copy, width};
}

// Rows of fp32 sums that become rows of T: those rows themselves, or `room`, from which store_row() makes them.
struct Sums {
    float* data;
    std::int64_t stride;
};
Sums sums_of(float* rows, std::int64_t stride, std::int64_t, std::int64_t, float*&) {
    return {rows, stride};
}
Sums sums_of(bf16*, std::int64_t, std::int64_t count, std::int64_t width, float*& room) {
    float* sums = room;
    room += count * width;
    return {sums, width};
}
void store_row(float*, const float*, std::int64_t) {}
void store_row(bf16* row, const float* sums, std::int64_t width) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) row[c] = from_float<bf16>(sums[c]);
}

// transposed [width, lanes] from `count` rows; the remaining lanes are zero.
template <class T>
void pack_transposed(float* transposed, const T* rows, std::int64_t stride, std::int64_t count, std::int64_t lanes,
                     std::int64_t width) {
    for (std::int64_t c = 0; c < width; ++c) {
        float* line = transposed + c * lanes;
        for (std::int64_t i = 0; i < count; ++i) line[i] = to_float(rows[i * stride + c]);
        for (std::int64_t i = count; i < lanes; ++i) line[i] = 0.0f;
    }
}

// A single query: every product is with a vector, so lanes run over the width.
template <class T>
void forward_single(const AttentionHead<T>& head, T* y, float* log_sum_exp, std::int64_t query, float* scratch) {
    const T* q = head.q + query * head.query_stride;
    float *scores = scratch, *room = scores + key_tile;
    float* const out = sums_of(y + query * head.output_stride, head.output_stride, 1, head.width, room).data;
    const std::int64_t width = head.width;
    const Keys seen = keys_seen(head, query, query + 1);
    float highest = lowest_score, total = 0;
    for (std::int64_t c = 0; c < width; ++c) out[c] = 0.0f;
    for (std::int64_t from = seen.begin; from < seen.end; from += key_tile) {
        const std::int64_t keys = least(key_tile, seen.end - from);
        for (std::int64_t j = 0; j < keys; ++j) {
            const T* k = head.k + (from + j) * head.key_stride;
            float product = 0;
#pragma omp simd reduction(+ : product)
            for (std::int64_t c = 0; c < width; ++c) product += to_float(q[c]) * to_float(k[c]);
            scores[j] = product;
        }
        const float scale = cap_scores(head, scores, keys);
        float raised = highest;
        for (std::int64_t j = 0; j < keys; ++j) {
            scores[j] *= scale;
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
        if (from > seen.begin)
            for (std::int64_t c = 0; c < width; ++c) out[c] *= correction;
        float* rest = room;
        const Rows values = rows_of(head.v + from * head.value_stride, head.value_stride, keys, width, rest);
        tile_product(out, width, {scores, key_tile, 1}, values.data, values.stride, 1, width, keys, true);
    }
    const float inverse = total > 0 ? 1.0f / total : 0.0f;
    for (std::int64_t c = 0; c < width; ++c) out[c] *= inverse;
    store_row(y + query * head.output_stride, out, width);
    log_sum_exp[query] = highest + __builtin_logf(total);
}

template <class T>
void forward_tile(const AttentionHead<T>& head, T* y, float* log_sum_exp, std::int64_t first, std::int64_t count,
                  float* scratch) {
    if (count == 1) return forward_single(head, y, log_sum_exp, first, scratch);
    const std::int64_t width = head.width, lanes = lanes_for(count), stride = head.output_stride;
    float* queries = scratch;                    // [width, lanes]
    float* scores = queries + width * lanes;     // [key_tile, lanes]
    float* highest = scores + key_tile * lanes;  // [lanes]: of the scores so far
    float* total = highest + lanes;              // Σ exp(score - highest)
    float* correction = total + lanes;
    float* room = correction + lanes;
    const Sums out = sums_of(y + first * stride, stride, count, width, room);
    pack_transposed(queries, head.q + first * head.query_stride, head.query_stride, count, lanes, width);
    for (std::int64_t i = 0; i < lanes; ++i) {
        highest[i] = lowest_score;
        total[i] = 0.0f;
    }
    const Keys seen = keys_seen(head, first, first + count);
    if (seen.begin == seen.end)
        for (std::int64_t i = 0; i < count; ++i)
            for (std::int64_t c = 0; c < width; ++c) out.data[i * out.stride + c] = 0.0f;
    SeeingLanes<T> seeing(head, first, count, lanes);
    for (std::int64_t from = seen.begin; from < seen.end; from += key_tile) {
        const std::int64_t keys = least(key_tile, seen.end - from);
        float* rest = room;
        const Rows key_rows = rows_of(head.k + from * head.key_stride, head.key_stride, keys, width, rest);
        const Rows value_rows = rows_of(head.v + from * head.value_stride, head.value_stride, keys, width, rest);
        tile_product(scores, lanes, {key_rows.data, key_rows.stride, 1}, queries, lanes, keys, lanes, width, false);
        for (std::int64_t i = 0; i < lanes; ++i) correction[i] = highest[i];
        for (std::int64_t j = 0; j < keys; ++j) {
            float* line = scores + j * lanes;
            const float scale = cap_scores(head, line, lanes);
            const Lanes see = seeing.of(from + j);
            for (std::int64_t i = 0; i < see.begin; ++i) line[i] = -__builtin_inff();
            for (std::int64_t i = see.end; i < lanes; ++i) line[i] = -__builtin_inff();
#pragma omp simd
            for (std::int64_t i = 0; i < lanes; ++i) {
                line[i] *= scale;
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
        if (from > seen.begin)
            for (std::int64_t i = 0; i < count; ++i) {
                float* row = out.data + i * out.stride;
                const float factor = correction[i];
                for (std::int64_t c = 0; c < width; ++c) row[c] *= factor;
            }
        tile_product(out.data, out.stride, {scores, 1, lanes}, value_rows.data, value_rows.stride, count, width, keys,
                     from > seen.begin);
    }
    for (std::int64_t i = 0; i < count; ++i) {
        float* row = out.data + i * out.stride;
        const float inverse = total[i] > 0 ? 1.0f / total[i] : 0.0f;  // 0: no key
        for (std::int64_t c = 0; c < width; ++c) row[c] *= inverse;
        store_row(y + (first + i) * stride, row, width);
        log_sum_exp[first + i] = highest[i] + __builtin_logf(total[i]);
    }
}

template <class T>
void forward(const AttentionHead<T>& head, T* y, float* log_sum_exp, std::int64_t first, std::int64_t count,
             float* scratch) {
    for (std::int64_t done = 0; done < count; done += query_tile)
        forward_tile(head, y, log_sum_exp, first + done, least(query_tile, count - done), scratch);
}

// P = exp(scale K Qᵀ - log_sum_exp), dV += P dY, dP = V dYᵀ, dS = scale P ⊙ (dP - Σ_c dy y), dK += dS Q, dQ += dSᵀ K.
// With a cap, P = exp(S - log_sum_exp) of S = cap tanh(scale K Qᵀ / cap), and dS gets the factor 1 - (S / cap)².
template <class T>
void backward(const AttentionHead<T>& head, T* dq, std::int64_t dq_stride, float* dk, float* dv, const T* dy,
              const T* y, const float* log_sum_exp, float* scratch) {
    const std::int64_t width = head.width, stride = head.output_stride, row = attention_gradient_row(width);
    for (std::int64_t first = 0; first < head.query_length; first += query_tile) {
        const std::int64_t count = least(query_tile, head.query_length - first), lanes = lanes_for(count);
        float* queries = scratch;                          // [width, lanes]
        float* output_gradient = queries + width * lanes;  // [width, lanes]
        float* weights = output_gradient + width * lanes;  // P [key_tile, lanes]
        float* gradient = weights + key_tile * lanes;      // dP, then dS [key_tile, lanes]
        float* along = gradient + key_tile * lanes;        // [lanes]: Σ_c dy y
        float* level = along + lanes;                      // [lanes]: log_sum_exp
        float* room = level + lanes;
        const Rows q_rows = rows_of(head.q + first * head.query_stride, head.query_stride, count, width, room);
        const Rows dy_rows = rows_of(dy + first * stride, stride, count, width, room);
        const Sums dq_sums = sums_of(dq + first * dq_stride, dq_stride, count, width, room);
        pack_transposed(queries, q_rows.data, q_rows.stride, count, lanes, width);
        pack_transposed(output_gradient, dy_rows.data, dy_rows.stride, count, lanes, width);
        for (std::int64_t i = 0; i < lanes; ++i) along[i] = level[i] = 0.0f;
        for (std::int64_t i = 0; i < count; ++i) {
            const T* out = y + (first + i) * stride;
            const float* gradient_row = dy_rows.data + i * dy_rows.stride;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (std::int64_t c = 0; c < width; ++c) sum += gradient_row[c] * to_float(out[c]);
            along[i] = sum;
            level[i] = log_sum_exp[first + i];
        }
        const Keys seen = keys_seen(head, first, first + count);
        if (seen.begin == seen.end)
            for (std::int64_t i = 0; i < count; ++i)
                for (std::int64_t c = 0; c < width; ++c) dq_sums.data[i * dq_sums.stride + c] = 0.0f;
        SeeingLanes<T> seeing(head, first, count, lanes);
        for (std::int64_t from = seen.begin; from < seen.end; from += key_tile) {
            const std::int64_t keys = least(key_tile, seen.end - from);
            float* rest = room;
            const Rows k_rows = rows_of(head.k + from * head.key_stride, head.key_stride, keys, width, rest);
            const Rows v_rows = rows_of(head.v + from * head.value_stride, head.value_stride, keys, width, rest);
            tile_product(weights, lanes, {k_rows.data, k_rows.stride, 1}, queries, lanes, keys, lanes, width, false);
            tile_product(gradient, lanes, {v_rows.data, v_rows.stride, 1}, output_gradient, lanes, keys, lanes, width,
                         false);
            for (std::int64_t j = 0; j < keys; ++j) {
                float* p = weights + j * lanes;
                float* ds = gradient + j * lanes;
                const float scale = cap_scores(head, p, lanes);
                const bool capped = head.score_cap > 0;
                const float inverse_cap = capped ? 1.0f / head.score_cap : 0.0f;
#pragma omp simd
                for (std::int64_t i = 0; i < lanes; ++i) {
                    const float share = inverse_cap * p[i], slope = capped ? 1.0f - share * share : 1.0f;
                    p[i] = exponential(scale * p[i] - level[i]);
                    ds[i] = head.scale * slope * p[i] * (ds[i] - along[i]);
                }
                const Lanes see = seeing.of(from + j);
                for (std::int64_t i = 0; i < see.begin; ++i) p[i] = ds[i] = 0.0f;
                for (std::int64_t i = see.end; i < lanes; ++i) p[i] = ds[i] = 0.0f;
            }
            tile_product(dv + from * row, row, {weights, lanes, 1}, dy_rows.data, dy_rows.stride, keys, width, count,
                         true);
            tile_product(dk + from * row, row, {gradient, lanes, 1}, q_rows.data, q_rows.stride, keys, width, count,
                         true);
            tile_product(dq_sums.data, dq_sums.stride, {gradient, 1, lanes}, k_rows.data, k_rows.stride, count, width,
                         keys, from > seen.begin);
        }
        for (std::int64_t i = 0; i < count; ++i)
            store_row(dq + (first + i) * dq_stride, dq_sums.data + i * dq_sums.stride, width);
    }
}

template <class T>
constexpr Attention<T> table() {
    return {forward_scratch<T>, backward_scratch<T>, forward<T>, backward<T>, join<T>};
}

}  // namespace

constinit const Attention<float> attention_fp32 = table<float>();
constinit const Attention<bf16> attention_bf16 = table<bf16>();

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
