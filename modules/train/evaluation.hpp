// Evaluates the loss over a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/progress_line.hpp"
#include "cluster/host_group.hpp"
#include "data/dataset.hpp"
#include "model/stage.hpp"
#include "train/batch.hpp"

namespace lockstep::train {

struct Evaluation {
    double loss = 0;  // mean cross-entropy per token, nats
    std::int64_t tokens = 0;
    // Comparable between tokenizers; 0: the data's bytes are not known.
    double bits_per_byte = 0;
};

// This rank's share of a data set: sequences per forward pass and tokens per sequence; its place among the replicas
// that divide the windows; and whether it contributes losses and token counts, since ranks of one replica see the same
// windows.
struct EvaluationShare {
    std::int64_t micro = 1, length = 1;
    model::Part replicas;
    bool counts_losses = true, counts_tokens = true;
    bool equal_passes = false;  // all replicas run as many passes, since they exchange messages in each
};
// Runs one micro-batch, filled by `load`, and adds its losses to a sum.
using LoadWindows = std::function<void(const HostBatch& batch)>;
using EvaluateBatch = std::function<void(const LoadWindows& load)>;

// Collective: the first `windows` windows of `data` in order (0: all). `evaluate_batch` adds the losses to `sum` (fp64
// [1], on the device).
Evaluation evaluate(kernels::Backend& backend, const data::Dataset& data, std::int64_t windows,
                    const EvaluationShare& share, Tensor sum, const EvaluateBatch& evaluate_batch,
                    cluster::HostGroup& group, ProgressLine& progress);
// Of each position of a window: the sum of its losses and how many there were. Documents that are kept apart leave
// positions without.
struct LossesByPosition {
    std::vector<double> sums, targets;
};
// With the whole model on every rank. `by_position` may be null.
Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::HostGroup& group, ProgressLine& progress,
                    LossesByPosition* by_position = nullptr);

}  // namespace lockstep::train
