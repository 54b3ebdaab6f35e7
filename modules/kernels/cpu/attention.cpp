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
    LOCKSTEP_ASSERT(log_sum_exp.count() == s.batch * s.heads * s.query_length);
}

// Offsets of one head of one sequence.
struct Place {
    std::int64_t query, key, log_sum_exp;
};
Place place_of(const AttentionShape& s, std::int64_t sequence, std::int64_t head) {
    const std::int64_t key_head = head / (s.heads / s.key_heads);
    return {(sequence * s.query_length * s.heads + head) * s.head_width,
            (sequence * s.key_length * s.key_heads + key_head) * s.head_width,
            (sequence * s.heads + head) * s.query_length};
}

template <class T>
AttentionHead<T> head_at(const AttentionShape& s, const Place& place, const Tensor& q, const Tensor& k,
                         const Tensor& v) {
    return {q.as<T>() + place.query,
            k.as<T>() + place.key,
            v.as<T>() + place.key,
            s.heads * s.head_width,
            s.key_heads * s.head_width,
            s.query_length,
            s.key_length,
            s.head_width,
            1.0f / std::sqrt(static_cast<float>(s.head_width))};
}

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
        scratch_->reserve(attention.forward_scratch(shape.head_width));
        parallel_for(shape.batch * shape.heads * tiles, 1, [&](std::int64_t first, std::int64_t last, int thread) {
            for (std::int64_t item = first; item < last; ++item) {
                const std::int64_t row = item % tiles * tile, head = item / tiles % shape.heads;
                const Place place = place_of(shape, item / tiles / shape.heads, head);
                attention.forward(head_at<T>(shape, place, q, k, v), y.as<T>() + place.query, sums + place.log_sum_exp,
                                  row, std::min(tile, shape.query_length - row), scratch_->of(thread));
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
    const std::int64_t key_stride = shape.key_heads * width, head_count = shape.key_length * width;
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
                    const Place place = place_of(shape, sequence, key_head * group + member);
                    attention.backward(head_at<T>(shape, place, q, k, v), dq.as<T>() + place.query, dkeys, dvalues,
                                       dy.as<T>() + place.query, y.as<T>() + place.query, sums + place.log_sum_exp,
                                       rest);
                }
                const std::int64_t at = place_of(shape, sequence, key_head * group).key;
                for (std::int64_t row = 0; row < shape.key_length; ++row) {
                    elementwise.round(dk.as<T>() + at + row * key_stride, dkeys + row * width, width);
                    elementwise.round(dv.as<T>() + at + row * key_stride, dvalues + row * width, width);
                }
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
