// Causal attention of one head, tile by tile: `query_tile` queries against `key_tile` keys at a time. Scores are held
// transposed, keys × queries, so that the softmax runs down the rows with a query in each vector lane.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct AttentionHead {
    const float *q, *k, *v;                 // first row of this head's columns
    std::int64_t query_stride, key_stride;  // from row to row: H·f and G·f
    std::int64_t query_length, key_length, width;
    float scale;  // of the scores: 1/sqrt(f)
};

struct Attention {
    static constexpr std::int64_t query_tile = 64;
    static constexpr std::int64_t key_tile = 64;

    // fp32 elements of scratch that each function below needs.
    std::int64_t (*forward_scratch)(std::int64_t width);
    std::int64_t (*backward_scratch)(std::int64_t width);
    // y rows and log_sum_exp entries of queries [first, first + count), count <= query_tile. y has q's stride.
    void (*forward)(const AttentionHead& head, float* y, float* log_sum_exp, std::int64_t first, std::int64_t count,
                    float* scratch);
    // The whole head: dq is overwritten; dk and dv are +=, since the heads of a group share them. dy and y have q's
    // stride, dk and dv have k's.
    void (*backward)(const AttentionHead& head, float* dq, float* dk, float* dv, const float* dy, const float* y,
                     const float* log_sum_exp, float* scratch);
};

}  // namespace lockstep::kernels::cpu
