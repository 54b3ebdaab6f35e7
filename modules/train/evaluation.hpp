// The loss over a data set, without training.
#pragma once

#include <cstdint>

#include "cluster/communicator.hpp"
#include "data/dataset.hpp"
#include "model/stage.hpp"

namespace lockstep::train {

struct Evaluation {
    double loss = 0;  // mean cross-entropy a token, nats
    std::int64_t tokens = 0;
};

// int32 tensors of one micro-batch.
struct BatchTensors {
    BatchTensors(Device device, const model::PassShape& shape);
    Arena memory;
    Tensor ids, targets, losses;  // [N]
};

// Collective: the first `windows` windows of `data` in order (0: all), divided among the ranks.
Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::Communicator& communicator);

}  // namespace lockstep::train
