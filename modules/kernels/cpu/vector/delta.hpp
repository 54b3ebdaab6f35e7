// The gated delta rule of one head of one sequence, a chunk of tokens at a time; equations and symbols as in
// docs/gated-deltanet.md.
//
// Internally, rows of tokens and of states are zero-padded to whole blocks of 16 elements: a state is [fk, padded fv].
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

constexpr std::int64_t delta_block = 16;
constexpr std::int64_t delta_chunk = 32;  // tokens
constexpr std::int64_t delta_group = 4;   // chunks between two saved states

struct DeltaGeometry {
    std::int64_t length, heads;
    std::int64_t key_width, value_width;    // fk, fv
    std::int64_t padded_key, padded_value;  // of rows of queries and keys, of values
    std::int64_t state_count() const { return key_width * padded_value; }
};

// A head's slice of a matrix: of the first token, and the elements to the next.
template <class T>
struct DeltaRows {
    T* first;
    std::int64_t stride;
    T* row(std::int64_t number) const { return first + number * stride; }
};

// Gates have rows of `heads` elements and point at the head's element.
template <class T>
struct DeltaForward {
    DeltaRows<T> q, k, v, y;
    const float *log_decay, *strength;
    float* state;        // in: before the first token; out: after the last, with `last_update`
    float* checkpoints;  // states before every delta_group-th chunk but the first; may be null
    bool last_update;
};

// A key head and the `members` value heads that share it; tensors of value heads point at the first.
template <class T>
struct DeltaBackward {
    std::int64_t members;
    DeltaRows<T> q, k, v, dy;
    const float *log_decay, *strength;
    const float* states;  // before the first token, of each member
    const float* checkpoints;
    std::int64_t checkpoint_count;  // floats of a member's checkpoints
    DeltaRows<T> dq, dk, dv;
    float *dlog_decay, *dstrength;
    float* dstates;  // of each member; in: of the final state; out: of the initial state
};

// One token, by the recurrence; states are [fk, fv], without padding. `after` may be `before`, or null.
template <class T>
struct DeltaStep {
    const T *q, *k, *v;
    T* y;
    float log_decay, strength;
    const float* before;
    float* after;
};

template <class T>
struct Delta {
    // One token: `rate` is -exp(log_rate).
    void (*gates_forward)(float* log_decay, float* strength, const T* decay_logit, const T* strength_logit,
                          const float* rate, const float* decay_bias, std::int64_t heads);
    // dlog_rate and ddecay_bias are +=.
    void (*gates_backward)(T* ddecay_logit, T* dstrength_logit, float* dlog_rate, float* ddecay_bias,
                           const float* dlog_decay, const float* dstrength, const T* decay_logit, const float* strength,
                           const float* rate, const float* decay_bias, std::int64_t heads);
    // Floats of 64-byte aligned scratch that the functions below need.
    std::int64_t (*step_scratch)(const DeltaGeometry& geometry);
    std::int64_t (*forward_scratch)(const DeltaGeometry& geometry);
    std::int64_t (*backward_scratch)(const DeltaGeometry& geometry);
    void (*step)(const DeltaGeometry& geometry, const DeltaStep<T>& task, float* scratch);
    void (*forward)(const DeltaGeometry& geometry, const DeltaForward<T>& task, float* scratch);
    void (*backward)(const DeltaGeometry& geometry, const DeltaBackward<T>& task, float* scratch);
};

}  // namespace lockstep::kernels::cpu
