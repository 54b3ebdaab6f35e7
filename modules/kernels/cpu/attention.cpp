#include "kernels/cpu/vector/attention.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

void check(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
           const Tensor& log_sum_exp) {
    LOCKSTEP_ASSERT(s.valid());
    const std::int64_t queries = s.batch * s.query_length * s.heads * s.head_width;
    const std::int64_t keys = s.batch * s.key_length * s.key_heads * s.head_width;
    LOCKSTEP_ASSERT(q.count() == queries && y.count() == queries && k.count() == keys && v.count() == keys);
    LOCKSTEP_ASSERT(log_sum_exp.count() == s.batch * s.heads * s.query_length);
}

// The columns of a head in the first of a sequence's rows.
template <class T>
T* head_in(const Tensor& rows, std::int64_t length, const AttentionShape& s, std::int64_t sequence, std::int64_t head) {
    return rows.strided_as<T>() + sequence * length * rows.stride() + head * s.head_width;
}

template <class T>
AttentionHead<T> head_at(const AttentionShape& s, std::int64_t sequence, std::int64_t head, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& y) {
    const std::int64_t key_head = head / (s.heads / s.key_heads);
    const Documents& documents = s.documents;
    const std::int32_t* starts = nullptr;
    if (!documents.joined())
        starts = documents.starts.as<std::int32_t>() + sequence * documents.starts.size(1) + documents.first_position;
    return {head_in<T>(q, s.query_length, s, sequence, head),
            head_in<T>(k, s.key_length, s, sequence, key_head),
            head_in<T>(v, s.key_length, s, sequence, key_head),
            q.stride(),
            k.stride(),
            v.stride(),
            y.stride(),
            s.query_length,
            s.key_length,
            s.head_width,
            s.query_position,
            s.window,
            starts,
            documents.first_position - s.query_position,
            1.0f / std::sqrt(static_cast<float>(s.head_width)),
            s.score_cap};
}

// Per thread: the gradients of a head's keys and values, and the tiles' scratch.
template <class T>
std::int64_t backward_floats(const Attention<T>& attention, const AttentionShape& shape) {
    return 2 * attention_gradient_count(shape.key_length, shape.head_width) +
           attention.backward_scratch(shape.key_length, shape.head_width);
}

}  // namespace

std::int64_t attention_scratch_floats(const AttentionShape& shape, Type type, int threads) {
    const auto of_thread = [&]<class T>(T) {
        const Attention<T>& attention = *vector_functions().of<T>().attention;
        return std::max(attention.forward_scratch(shape.key_length, shape.head_width),
                        backward_floats(attention, shape));
    };
    return threads * (type == Type::fp32 ? of_thread(float{}) : of_thread(bf16{}));
}

void CpuBackend::attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                                   const AttentionShape& shape) {
    check(shape, q, k, v, y, log_sum_exp);
    constexpr std::int64_t tile = attention_query_tile;
    const std::int64_t tiles = (shape.query_length + tile - 1) / tile;
    float* sums = log_sum_exp.fp32();
    with_element(q, [&]<class T>(T) {
        const Attention<T>& attention = *vector_.of<T>().attention;
        scratch_->reserve(attention.forward_scratch(shape.key_length, shape.head_width));
        parallel_for(shape.batch * shape.heads * tiles, 1, [&](std::int64_t first, std::int64_t last, int thread) {
            for (std::int64_t item = first; item < last;) {
                // As many tiles of one head at a time as there are.
                const std::int64_t row = item % tiles * tile, head = item / tiles % shape.heads;
                const std::int64_t sequence = item / tiles / shape.heads;
                const std::int64_t some = std::min(tiles - item % tiles, last - item);
                attention.forward(head_at<T>(shape, sequence, head, q, k, v, y),
                                  head_in<T>(y, shape.query_length, shape, sequence, head),
                                  sums + (sequence * shape.heads + head) * shape.query_length, row,
                                  std::min(some * tile, shape.query_length - row), scratch_->of(thread));
                item += some;
            }
        });
    });
}

void CpuBackend::attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                    Tensor log_sum_exp, const AttentionShape& shape) {
    check(shape, q, k, v, y, log_sum_exp);
    LOCKSTEP_ASSERT(dq.count() == q.count() && dy.count() == q.count() && dk.count() == k.count() &&
                    dv.count() == k.count() && dy.stride() == y.stride());
    const float* sums = log_sum_exp.fp32();
    const std::int64_t group = shape.heads / shape.key_heads, width = shape.head_width;
    const std::int64_t queries = shape.query_length, keys = shape.key_length;
    const std::int64_t row_width = attention_gradient_row(width), head_count = attention_gradient_count(keys, width);
    with_element(q, [&]<class T>(T) {
        const Attention<T>& attention = *vector_.of<T>().attention;
        const Elementwise<T>& elementwise = *vector_.of<T>().elementwise;
        scratch_->reserve(backward_floats(attention, shape));
        // One thread per key head: the heads of its group add to the same dk and dv, in order and in fp32.
        parallel_for(shape.batch * shape.key_heads, 1, [&](std::int64_t first, std::int64_t last, int thread) {
            float *dkeys = scratch_->of(thread), *dvalues = dkeys + head_count, *rest = dvalues + head_count;
            for (std::int64_t item = first; item < last; ++item) {
                const std::int64_t sequence = item / shape.key_heads, key_head = item % shape.key_heads;
                std::fill_n(dkeys, 2 * head_count, 0.0f);
                for (std::int64_t member = 0; member < group; ++member) {
                    const std::int64_t head = key_head * group + member;
                    attention.backward(head_at<T>(shape, sequence, head, q, k, v, y),
                                       head_in<T>(dq, queries, shape, sequence, head), dq.stride(), dkeys, dvalues,
                                       head_in<T>(dy, queries, shape, sequence, head),
                                       head_in<T>(y, queries, shape, sequence, head),
                                       sums + (sequence * shape.heads + head) * queries, rest);
                }
                T* const dk_rows = head_in<T>(dk, keys, shape, sequence, key_head);
                T* const dv_rows = head_in<T>(dv, keys, shape, sequence, key_head);
                for (std::int64_t row = 0; row < keys; ++row) {
                    elementwise.round(dk_rows + row * dk.stride(), dkeys + row * row_width, width);
                    elementwise.round(dv_rows + row * dv.stride(), dvalues + row * row_width, width);
                }
            }
        });
    });
}

void CpuBackend::attention_join(Tensor sum, Tensor log_sum_exp, Tensor y, Tensor y_log_sum_exp,
                                std::int64_t first_query, const AttentionShape& shape) {
    const std::int64_t width = shape.head_width, heads = shape.heads, length = shape.query_length;
    const std::int64_t count = y_log_sum_exp.count() / (shape.batch * heads), row_width = heads * width;
    LOCKSTEP_ASSERT(first_query >= 0 && first_query + count <= length);
    LOCKSTEP_ASSERT(sum.count() == shape.batch * length * row_width && y.count() == shape.batch * count * row_width);
    LOCKSTEP_ASSERT(log_sum_exp.count() == shape.batch * heads * length);
    float *const sums = sum.fp32(), *const levels = log_sum_exp.fp32();
    const float* const y_levels = y_log_sum_exp.fp32();
    with_element(y, [&]<class T>(T) {
        const T* const joined = y.as<T>();
        const auto join = vector_.of<T>().attention->join;
        parallel_for(shape.batch * count, 1 + memory_grain / row_width,
                     [&](std::int64_t first, std::int64_t last, int) {
                         for (std::int64_t row = first; row < last; ++row) {
                             const std::int64_t sequence = row / count, query = row % count;
                             float* const to = sums + (sequence * length + first_query + query) * row_width;
                             for (std::int64_t head = 0; head < heads; ++head) {
                                 const std::int64_t of_all = sequence * heads + head;
                                 join(to + head * width, levels[of_all * length + first_query + query],
                                      joined + row * row_width + head * width, y_levels[of_all * count + query], width);
                             }
                         }
                     });
    });
}

}  // namespace lockstep::kernels::cpu
