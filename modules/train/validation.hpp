// Validation loss during training.
#pragma once

#include <cstdint>

#include "train/evaluation.hpp"
#include "train/launch.hpp"
#include "train/layer_groups.hpp"
#include "train/pipeline.hpp"

namespace lockstep::train {

class Validation {
  public:
    // The arguments outlive this object.
    Validation(Launch& launch, LayerGroups& layers, Pipeline& pipeline, trace::Tracer& tracer, trace::RegionId region);

    bool due(std::int64_t step) const;
    // Collective; the same on all ranks. Logs the loss.
    Evaluation run(std::int64_t step);

  private:
    Launch& launch_;
    LayerGroups& layers_;
    Pipeline& pipeline_;
    trace::Tracer& tracer_;
    trace::RegionId region_;
    Arena memory_;
    Tensor loss_;           // fp64 [1]
    std::int64_t windows_;  // of a validation; 0: all
};

}  // namespace lockstep::train
