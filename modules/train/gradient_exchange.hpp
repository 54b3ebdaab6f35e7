// Reduction of gradients: partial gradients are summed over the tensor group, each bucket over the replicas during the
// backward pass, and a tied table over both ends of the pipeline. With ZeRO stage 1, buckets are reduce-scattered, and
// updated parameters all-gathered afterwards.
#pragma once

#include <cstddef>

#include "cluster/process_grid.hpp"
#include "layout/devices.hpp"
#include "model/tensor_group.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class GradientExchange {
  public:
    // The arguments outlive this object.
    GradientExchange(const TrainingState& state, const layout::Devices& devices, const cluster::ProcessGroups& groups,
                     const model::TensorGroup& tensor_group)
        : state_(state), devices_(devices), groups_(groups), tensor_group_(tensor_group) {}

    // This rank's backward pass has completed the bucket: starts its reduction.
    void begin(std::size_t bucket);
    // After the last backward pass: the tied table, then waits for all buckets. Also sums `loss` (fp64 [1]) over all
    // ranks.
    void finish(Tensor loss);

  private:
    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    const model::TensorGroup& tensor_group_;
};

// With ZeRO, all-gathers the replicas' parts of the parameters; else a no-op.
void gather_parameters(const TrainingState& state, const cluster::ProcessGroups& groups);

}  // namespace lockstep::train
