#include "kernels/cpu/vector/attention.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/scratch.hpp"

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

AttentionHead head_at(const AttentionShape& s, const Place& place, const float* q, const float* k, const float* v) {
    return {q + place.query,
            k + place.key,
            v + place.key,
            s.heads * s.head_width,
            s.key_heads * s.head_width,
            s.query_length,
            s.key_length,
            s.head_width,
            1.0f / std::sqrt(static_cast<float>(s.head_width))};
}

}  // namespace

void CpuBackend::attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                                   const AttentionShape& shape) {
    check(shape, q, k, v, y, log_sum_exp);
    constexpr std::int64_t tile = Attention::query_tile;
    const std::int64_t tiles = (shape.query_length + tile - 1) / tile;
    scratch_->reserve(vector_.attention->forward_scratch(shape.head_width));
    float *out = y.fp32(), *sums = log_sum_exp.fp32();
    const float *queries = q.fp32(), *keys = k.fp32(), *values = v.fp32();
    parallel_for(shape.batch * shape.heads * tiles, 1, [&](std::int64_t first, std::int64_t last, int thread) {
        for (std::int64_t item = first; item < last; ++item) {
            const std::int64_t row = item % tiles * tile, head = item / tiles % shape.heads;
            const Place place = place_of(shape, item / tiles / shape.heads, head);
            vector_.attention->forward(head_at(shape, place, queries, keys, values), out + place.query,
                                       sums + place.log_sum_exp, row, std::min(tile, shape.query_length - row),
                                       scratch_->of(thread));
        }
    });
}

void CpuBackend::attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                    Tensor log_sum_exp, const AttentionShape& shape) {
    check(shape, q, k, v, y, log_sum_exp);
    LOCKSTEP_ASSERT(shape.query_length == shape.key_length);
    LOCKSTEP_ASSERT(dq.count() == q.count() && dy.count() == q.count() && dk.count() == k.count() &&
                    dv.count() == k.count());
    scratch_->reserve(vector_.attention->backward_scratch(shape.head_width));
    fill(dk, 0.0f);
    fill(dv, 0.0f);
    float *dqueries = dq.fp32(), *dkeys = dk.fp32(), *dvalues = dv.fp32();
    const float *gradient = dy.fp32(), *out = y.fp32(), *sums = log_sum_exp.fp32();
    const float *queries = q.fp32(), *keys = k.fp32(), *values = v.fp32();
    const std::int64_t group = shape.heads / shape.key_heads;
    // One thread owns a key head, so that the heads of its group add to dk and dv in order.
    parallel_for(shape.batch * shape.key_heads, 1, [&](std::int64_t first, std::int64_t last, int thread) {
        for (std::int64_t item = first; item < last; ++item)
            for (std::int64_t member = 0; member < group; ++member) {
                const Place place = place_of(shape, item / shape.key_heads, item % shape.key_heads * group + member);
                vector_.attention->backward(head_at(shape, place, queries, keys, values), dqueries + place.query,
                                            dkeys + place.key, dvalues + place.key, gradient + place.query,
                                            out + place.query, sums + place.log_sum_exp, scratch_->of(thread));
            }
    });
}

}  // namespace lockstep::kernels::cpu
