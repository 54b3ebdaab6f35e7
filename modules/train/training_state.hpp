// This rank's training state: parameters and gradients, optimizer, counters. A checkpoint holds exactly this.
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/checkpoint.hpp"
#include "layout/gradient_plan.hpp"
#include "model/parameters.hpp"
#include "optim/optimizer.hpp"
#include "train/launch.hpp"

namespace lockstep::train {

struct TrainingState {
    layout::GradientPlan gradient_plan;
    std::unique_ptr<kernels::Backend> host;  // of the CPU, where parameters are offloaded
    std::unique_ptr<model::ParameterSet> parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
    bool divided = false;      // replicas divide the optimizer (ZeRO)
    std::int64_t padding = 0;  // elements between parameters, over all ranks; their gradients are zero
    checkpoint::State counters;
};

// Collective. Allocates parameters and optimizer, uninitialized.
TrainingState make_training_state(const Launch& launch);

// Collective. Sets initial values: from the checkpoint to resume, or drawn from run.seed.
void fill_training_state(const Launch& launch, TrainingState& state);

}  // namespace lockstep::train
