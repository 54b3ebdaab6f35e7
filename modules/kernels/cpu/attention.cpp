#include "kernels/cpu/vector/attention.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

void check(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
           const Tensor& log_sum_exp) {
    LOCKSTEP_ASSERT(s.key_heads > 0 && s.heads % s.key_heads == 0 && s.head_width > 0);
    LOCKSTEP_ASSERT(s.key_length >= s.query_length);
    const std::int64_t queries = s.batch * s.query_length * s.heads * s.head_width;
    const std::int64_t keys = s.batch * s.key_length * s.key_heads * s.head_width;
    LOCKSTEP_ASSERT(q.count() == queries && y.count() == queries && k.count() == keys && v.count() == keys);
    LOCKSTEP_ASSERT(y.dense() && log_sum_exp.count() == s.batch * s.heads * s.query_length);
}

// From row to row of a matrix of these heads, whatever its shape if it is dense.
std::int64_t row_stride(const Tensor& tensor, std::int64_t heads, std::int64_t width) {
    LOCKSTEP_ASSERT(tensor.dense() || tensor.size(-1) == heads * width);
    return tensor.dense() ? heads * width : tensor.stride();
}

// Queries or keys of all sequences: where a head of a sequence begins.
template <class T>
struct Heads {
    T* data;
    std::int64_t stride, length, width;
    Heads(const Tensor& tensor, std::int64_t rows, std::int64_t heads, std::int64_t columns)
        : data(tensor.strided_as<T>()), stride(row_stride(tensor, heads, columns)), length(rows), width(columns) {}
    T* of(std::int64_t sequence, std::int64_t head) const { return data + sequence * length * stride + head * width; }
};
template <class T>
Heads<T> queries_of(const AttentionShape& s, const Tensor& tensor) {
    return {tensor, s.query_length, s.heads, s.head_width};
}
template <class T>
Heads<T> keys_of(const AttentionShape& s, const Tensor& tensor) {
    return {tensor, s.key_length, s.key_heads, s.head_width};
}

template <class T>
struct Inputs {
    Heads<T> q, k, v;
    Inputs(const AttentionShape& s, const Tensor& q_rows, const Tensor& k_rows, const Tensor& v_rows)
        : q(queries_of<T>(s, q_rows)), k(keys_of<T>(s, k_rows)), v(keys_of<T>(s, v_rows)) {}
    AttentionHead<T> at(const AttentionShape& s, std::int64_t sequence, std::int64_t head,
                        std::int64_t dq_stride) const {
        const std::int64_t key_head = head / (s.heads / s.key_heads);
        return {q.of(sequence, head),
                k.of(sequence, key_head),
                v.of(sequence, key_head),
                q.stride,
                k.stride,
                v.stride,
                s.heads * s.head_width,
                dq_stride,
                s.query_length,
                s.key_length,
                s.head_width,
                1.0f / std::sqrt(static_cast<float>(s.head_width))};
    }
};

// Per thread: the gradients of a head's keys and values, and the tiles' scratch.
template <class T>
std::int64_t backward_floats(const Attention<T>& attention, const AttentionShape& shape) {
    return 2 * shape.key_length * shape.head_width + attention.backward_scratch(shape.head_width);
}

}  // namespace

std::int64_t attention_scratch_floats(const AttentionShape& shape, Type type, int threads) {
    const auto of_thread = [&]<class T>(T) {
        const Attention<T>& attention = *vector_functions().of<T>().attention;
        return std::max(attention.forward_scratch(shape.head_width), backward_floats(attention, shape));
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
        const Inputs<T> inputs(shape, q, k, v);
        const Heads<T> outputs = queries_of<T>(shape, y);
        scratch_->reserve(attention.forward_scratch(shape.head_width));
        parallel_for(shape.batch * shape.heads * tiles, 1, [&](std::int64_t first, std::int64_t last, int thread) {
            for (std::int64_t item = first; item < last; ++item) {
                const std::int64_t row = item % tiles * tile, head = item / tiles % shape.heads;
                const std::int64_t sequence = item / tiles / shape.heads;
                attention.forward(inputs.at(shape, sequence, head, 0), outputs.of(sequence, head),
                                  sums + (sequence * shape.heads + head) * shape.query_length, row,
                                  std::min(tile, shape.query_length - row), scratch_->of(thread));
            }
        });
    });
}

void CpuBackend::attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                    Tensor log_sum_exp, const AttentionShape& shape) {
    check(shape, q, k, v, y, log_sum_exp);
    LOCKSTEP_ASSERT(shape.query_length == shape.key_length);
    LOCKSTEP_ASSERT(dq.count() == q.count() && dy.count() == q.count() && dk.count() == k.count() &&
                    dv.count() == k.count());
    const float* sums = log_sum_exp.fp32();
    const std::int64_t group = shape.heads / shape.key_heads, width = shape.head_width;
    const std::int64_t head_count = shape.key_length * width;
    with_element(q, [&]<class T>(T) {
        const Attention<T>& attention = *vector_.of<T>().attention;
        const Elementwise<T>& elementwise = *vector_.of<T>().elementwise;
        const Inputs<T> inputs(shape, q, k, v);
        const Heads<T> outputs = queries_of<T>(shape, y), output_gradients = queries_of<T>(shape, dy);
        const Heads<T> query_gradients = queries_of<T>(shape, dq);
        const Heads<T> key_gradients = keys_of<T>(shape, dk), value_gradients = keys_of<T>(shape, dv);
        scratch_->reserve(backward_floats(attention, shape));
        // One thread per key head: the heads of its group add to the same dk and dv, in order and in fp32.
        parallel_for(shape.batch * shape.key_heads, 1, [&](std::int64_t first, std::int64_t last, int thread) {
            float *dkeys = scratch_->of(thread), *dvalues = dkeys + head_count, *rest = dvalues + head_count;
            for (std::int64_t item = first; item < last; ++item) {
                const std::int64_t sequence = item / shape.key_heads, key_head = item % shape.key_heads;
                std::fill_n(dkeys, 2 * head_count, 0.0f);
                for (std::int64_t member = 0; member < group; ++member) {
                    const std::int64_t head = key_head * group + member;
                    attention.backward(inputs.at(shape, sequence, head, query_gradients.stride),
                                       query_gradients.of(sequence, head), dkeys, dvalues,
                                       output_gradients.of(sequence, head), outputs.of(sequence, head),
                                       sums + (sequence * shape.heads + head) * shape.query_length, rest);
                }
                T* const key_rows = key_gradients.of(sequence, key_head);
                T* const value_rows = value_gradients.of(sequence, key_head);
                for (std::int64_t row = 0; row < shape.key_length; ++row) {
                    elementwise.round(key_rows + row * key_gradients.stride, dkeys + row * width, width);
                    elementwise.round(value_rows + row * value_gradients.stride, dvalues + row * width, width);
                }
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
