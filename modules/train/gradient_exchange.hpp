// How gradients become whole: partial gradients are summed over the tensor group, each bucket over the replicas while
// the backward pass goes on, and a tied table over both ends of the pipeline. Where replicas divide the optimizer (ZeRO
// stage 1), a bucket is reduce-scattered, and the updated parameters are gathered afterwards.
#pragma once

#include <cstddef>

#include "cluster/process_grid.hpp"
#include "layout/devices.hpp"
#include "model/tensor_group.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class GradientExchange {
  public:
    // All of them outlive this object.
    GradientExchange(const TrainingState& state, const layout::Devices& devices, const cluster::ProcessGroups& groups,
                     const model::TensorGroup& tensor_group)
        : state_(state), devices_(devices), groups_(groups), tensor_group_(tensor_group) {}

    // This rank's backward pass has completed the bucket: begins to reduce it.
    void begin(std::size_t bucket);
    // After the last backward pass: the tied table, then waits for every bucket. `loss` (fp64 [1]) is summed over all
    // ranks on the way.
    void finish(Tensor loss);

  private:
    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    const model::TensorGroup& tensor_group_;
};

// Each replica's part of the parameters goes to all replicas, where they divide the optimizer; else nothing.
void gather_parameters(const TrainingState& state, const cluster::ProcessGroups& groups);

}  // namespace lockstep::train
