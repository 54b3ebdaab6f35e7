// Gradients added up over the ranks: partial gradients over the tensor group, buckets over the replicas during the
// backward pass, and a tied table over both ends of the pipeline. With ZeRO stage 1 a replica gets the sums of its part
// of each bucket only, and updated parameters are all-gathered afterwards. From stage 2 on it gets them after each
// micro-batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cluster/process_grid.hpp"
#include "model/tensor_group.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class GradientExchange {
  public:
    GradientExchange() = default;
    GradientExchange(const GradientExchange&) = delete;
    GradientExchange& operator=(const GradientExchange&) = delete;
    virtual ~GradientExchange() = default;

    virtual void begin_step(bool) {}  // whether its phases are timed exactly
    // Before a micro-batch's gradients of a bucket are computed, if the replicas divide gradients.
    virtual void prepare(std::size_t) {}
    // This rank's backward passes of a lane, or without lanes of the step (lane 0), have completed the bucket; or one
    // pass has, if the replicas divide gradients.
    virtual void complete(std::size_t bucket, std::int64_t lane) = 0;
    // After the last backward pass: the sums are there. Also adds up `losses` (fp64) over all ranks.
    virtual void finish(Tensor losses) = 0;
    virtual std::size_t bytes() const { return 0; }  // of device memory
};

// By all-reduces or reduce-scatters, of a step or of each micro-batch; with parallel.lanes by lanes. The arguments
// outlive it.
std::unique_ptr<GradientExchange> make_gradient_exchange(const Launch& launch, const TrainingState& state,
                                                         const model::TensorGroup& tensor_group, trace::Tracer* tracer,
                                                         const Regions& regions);

// Adds up over the tensor group what its ranks have parts of.
void sum_partial(const model::ParameterSet& parameters, const layout::Bucket& bucket,
                 const model::TensorGroup& tensor_group);

// With ZeRO, all-gathers the replicas' parts of what each keeps whole of the parameters; else a no-op.
void gather_parameters(const TrainingState& state, const cluster::ProcessGroups& groups);

}  // namespace lockstep::train
