// How many sequences a step has, and how they are divided: a global batch among replicas, a replica's share into
// micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "config/run_description.hpp"

namespace lockstep::layout {

// Sequences of the step that begins after `samples` sequences: batch.global, or what the ramp has reached.
std::int64_t batch_after(const config::BatchSection& batch, std::int64_t samples);

// Every size that occurs, ascending; the last is batch.global.
std::vector<std::int64_t> batch_sizes(const config::BatchSection& batch);

// How many steps take so many samples (the last may take more), from the first step on.
std::int64_t steps_for(const config::BatchSection& batch, double samples);

// What divides a step's sequences: replicas of the model, or lanes, which replicas share.
struct BatchParts {
    std::int64_t count = 1;
    bool lanes = false;
};

// Sequences a forward pass: batch.micro, or one chosen for `tokens_at_once`. Usage error where sizes do not divide
// among `parts`, or where a part's micro-batches are not a multiple of `multiple` (interleaved pipelines).
// A chosen one leaves `wanted` micro-batches a step if there are enough sequences.
std::int64_t micro_batch_size(const config::BatchSection& batch, const BatchParts& parts, std::int64_t multiple,
                              std::int64_t tokens_at_once, std::int64_t wanted = 1);

// Global batches of a validation in a run of `steps` steps; 0: all. validation.batches = "auto" takes as many as cost a
// tenth of the FLOP of the training between two validations, where a forward pass is a third of a training step.
double validation_batches(const config::ValidationSection& validation, double steps);

}  // namespace lockstep::layout
