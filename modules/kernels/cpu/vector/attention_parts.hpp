// What kernels of attention share: which queries of a tile see which keys, scores, and the join of two results.
#pragma once

#include "kernels/cpu/vector/attention.hpp"
#include "kernels/cpu/vector/math.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static inline std::int64_t between_0_and(std::int64_t most, std::int64_t x) {
    return x < 0 ? 0 : least(x, most);
}

// The first key that a query sees, or what would be it if there were more keys.
template <class T>
static inline std::int64_t first_key(const AttentionHead<T>& head, std::int64_t query) {
    const std::int64_t of_window = head.window > 0 ? query + head.query_position - head.window + 1 : 0;
    const std::int64_t of_document = head.starts ? head.starts[query] - head.key_position : 0;
    const std::int64_t later = of_window > of_document ? of_window : of_document;
    return later > 0 ? later : 0;
}

// Of a tile's queries from `first` on, those in lanes [begin, end) see a key. Keys must be asked for in order.
struct Lanes {
    std::int64_t begin, end;
};
template <class T>
class SeeingLanes {
  public:
    SeeingLanes(const AttentionHead<T>& head, std::int64_t first, std::int64_t count, std::int64_t lanes)
        : behind_(head.query_position + first), count_(count), lanes_(lanes) {
        for (std::int64_t i = 0; i < count; ++i) first_keys_[i] = first_key(head, first + i);
    }
    Lanes of(std::int64_t key) {
        while (end_ < count_ && first_keys_[end_] <= key) ++end_;
        return {between_0_and(lanes_, key - behind_), end_ < count_ ? end_ : lanes_};
    }

  private:
    std::int64_t first_keys_[attention_query_tile];  // ascending
    std::int64_t behind_, count_, lanes_, end_ = 0;
};

// The queries [first, last) see keys [begin, end), not each of them all.
struct Keys {
    std::int64_t begin, end;
};
template <class T>
static inline Keys keys_seen(const AttentionHead<T>& head, std::int64_t first, std::int64_t last) {
    const std::int64_t end = least(head.key_length, last + head.query_position);
    return {between_0_and(end, first_key(head, first)), end};
}

// With a cap: products of queries and keys become scores. Returns what the result is still to be scaled by.
template <class T>
static inline float cap_scores(const AttentionHead<T>& head, float* products, std::int64_t count) {
    if (head.score_cap == 0) return head.scale;
    const float cap = head.score_cap, inside = head.scale / cap;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) products[i] = cap * hyperbolic_tangent(inside * products[i]);
    return 1.0f;
}

// Below all scores, and finite: of a query that has not seen a key yet, the maximum's difference to itself is 0.
static constexpr float lowest_score = -1e30f;

template <class T>
static inline void join(float* sum, float& log_sum_exp, const T* y, float y_log_sum_exp, std::int64_t width) {
    const float highest = log_sum_exp > y_log_sum_exp ? log_sum_exp : y_log_sum_exp;
    const float weight = exponential(log_sum_exp - highest), y_weight = exponential(y_log_sum_exp - highest);
    const float total = weight + y_weight, keep = weight / total, take = y_weight / total;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) sum[c] = keep * sum[c] + take * to_float(y[c]);
    log_sum_exp = highest + __builtin_logf(total);
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
