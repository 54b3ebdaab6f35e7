// Causal attention of one head in tiles of `query_tile` queries by `key_tile` keys. Scores are stored transposed, keys
// × queries, so that the softmax runs down the rows with one query per vector lane.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

template <class T>
struct AttentionHead {
    const T *q, *k, *v;                                   // first row of this head's columns
    std::int64_t query_stride, key_stride, value_stride;  // between rows
    std::int64_t output_stride;                           // of y and dy
    std::int64_t query_length, key_length, width;
    std::int64_t query_position;
    std::int64_t window;         // 0: none
    const std::int32_t* starts;  // of each query: where its document begins; null: all keys are of one
    std::int64_t key_position;   // the first key's, as `starts` counts
    float scale;                 // of the scores: 1/sqrt(f)
    float score_cap;             // 0: none
};

constexpr std::int64_t attention_query_tile = 64, attention_key_tile = 64;

// Gradients of a head's keys or values while they are summed: room for whole tiles of keys, rows this far apart.
static constexpr std::int64_t attention_gradient_row(std::int64_t width) {
    return (width + 31) / 32 * 32;
}
static constexpr std::int64_t attention_gradient_count(std::int64_t key_length, std::int64_t width) {
    return (key_length + attention_key_tile - 1) / attention_key_tile * attention_key_tile *
           attention_gradient_row(width);
}

template <class T>
struct Attention {
    // fp32 elements of scratch that each function below needs.
    std::int64_t (*forward_scratch)(std::int64_t key_length, std::int64_t width);
    std::int64_t (*backward_scratch)(std::int64_t key_length, std::int64_t width);
    // y rows and log_sum_exp entries of queries [first, first + count).
    void (*forward)(const AttentionHead<T>& head, T* y, float* log_sum_exp, std::int64_t first, std::int64_t count,
                    float* scratch);
    // The whole head: dq is overwritten; dk and dv, attention_gradient_count each, are +=, since grouped heads share
    // them.
    void (*backward)(const AttentionHead<T>& head, T* dq, std::int64_t dq_stride, float* dk, float* dv, const T* dy,
                     const T* y, const float* log_sum_exp, float* scratch);
    // A row's sum and log_sum_exp over some keys become those over these and y's.
    void (*join)(float* sum, float& log_sum_exp, const T* y, float y_log_sum_exp, std::int64_t width);
};

}  // namespace lockstep::kernels::cpu
