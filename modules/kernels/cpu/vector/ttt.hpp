// The TTT layer's inner loop for one head of one sequence; equations and symbols as in docs/ttt.md.
//
// Internally, matrices have the tokens of a mini-batch along the row ("feature-major", [f, b]): LayerNorm then sums
// down the columns, W and its transpose are read equally well, and only the token-major copies for rank-b updates are
// transposed. Rows of tokens and weights are zero-padded to whole blocks of 16 elements.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

constexpr std::int64_t ttt_block = 16;
constexpr std::int64_t ttt_group = 8;  // mini-batches between two saved states

struct TttGeometry {
    static constexpr bool fixed = false;  // sizes known at compile time have their own types
    bool mlp;
    std::int64_t length, mini_batch, heads;
    std::int64_t width, hidden;                              // f and g
    std::int64_t padded_width, padded_hidden, padded_batch;  // of rows of W2, of W1, and of tokens
    // A state is one array: W1 [f, padded g], c1 [padded g], and for mlp W2 [g, padded f], c2 [padded f].
    std::int64_t state_count;
};

// A head's slice of a matrix: of the first token, and the elements to the next.
template <class T>
struct TttRows {
    T* first;
    std::int64_t stride;
    T* row(std::int64_t number) const { return first + number * stride; }
};

// step_size has rows of `heads` elements and points at the head's element.
template <class T>
struct TttForward {
    TttRows<T> q, k, v;
    const float* step_size;
    const float* token_scale;              // τ [b]
    const float *norm_weight, *norm_bias;  // γ, β [f]
    TttRows<T> y;
    float* state;        // in: the sequence's initial state; out: after the last mini-batch, with `last_update`
    float* checkpoints;  // states before mini-batches 8, 16, …; may be null
    bool last_update;
};

template <class T>
struct TttBackward {
    TttRows<T> dy, q, k, v;
    const float* step_size;
    const float* token_scale;
    const float *norm_weight, *norm_bias;
    const float* state;  // the sequence's initial state
    const float* checkpoints;
    TttRows<T> dq, dk, dv;
    float* dstep_size;
    float* dstate;  // in: of the final state; out: of the initial state
    // Overwritten with this sequence's part: of γ and β [f], of τ [b].
    float *dnorm_weight, *dnorm_bias, *dtoken_scale;
};

// Decoding works directly on the tensors of TttState, without padding: weight1 [f, g] …
struct TttDecode {
    float *weight1, *bias1, *weight2, *bias2;
    float *weight1_sum, *bias1_sum, *weight2_sum, *bias2_sum;
    const float *norm_weight, *norm_bias;
};

template <class T>
struct Ttt {
    void (*step_size_forward)(float* step_size, const float* logit, float scale, std::int64_t count);
    void (*step_size_backward)(T* dlogit, const float* dstep_size, const float* step_size, float scale,
                               std::int64_t count);
    // Floats of 64-byte aligned scratch that the functions below need.
    std::int64_t (*forward_scratch)(const TttGeometry& geometry);
    std::int64_t (*backward_scratch)(const TttGeometry& geometry);
    std::int64_t (*decode_scratch)(const TttGeometry& geometry);
    void (*forward)(const TttGeometry& geometry, const TttForward<T>& task, float* scratch);
    void (*backward)(const TttGeometry& geometry, const TttBackward<T>& task, float* scratch);
    // One token: adds λ times its gradient to the sums, then reads with W - τ Σ.
    void (*decode)(const TttGeometry& geometry, const TttDecode& task, T* y, const T* q, const T* k, const T* v,
                   float step_size, float token_scale, float* scratch);
    // Ends a mini-batch: W -= τ Σ; Σ = 0.
    void (*decode_commit)(float* weight, float* weight_sum, float token_scale, std::int64_t count);
};

}  // namespace lockstep::kernels::cpu
