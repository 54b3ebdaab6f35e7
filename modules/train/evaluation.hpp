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

// Tensors of one micro-batch on the device.
struct BatchTensors {
    BatchTensors(Device device, const model::PassShape& shape);
    Arena memory;
    Tensor ids, targets, losses;                       // [N]; fp32 losses
    Tensor sum;                                        // fp64 [1]: of the losses
    std::vector<std::int32_t> host_ids, host_targets;  // where they are made
    void upload(kernels::Backend& backend);            // ids and targets
};

// Collective: the first `windows` windows of `data` in order (0: all), divided among the ranks.
Evaluation evaluate(kernels::Backend& backend, model::Stage& stage, BatchTensors& batch, const data::Dataset& data,
                    std::int64_t windows, cluster::Communicator& communicator);

}  // namespace lockstep::train
