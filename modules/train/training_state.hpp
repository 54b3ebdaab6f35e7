// What training changes, on this rank: parameters with their gradients, the optimizer's state, and the run's counters.
// A checkpoint holds exactly this.
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
    std::unique_ptr<model::ParameterSet> parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
    bool divided = false;      // replicas divide the optimizer (ZeRO stage 1)
    std::int64_t padding = 0;  // elements between parameters, of all ranks; their gradients are zero
    checkpoint::State counters;
};

// Collective. Allocates parameters and optimizer; neither has values yet.
TrainingState make_training_state(const Launch& launch);

// Collective. The values that a run starts from: of the checkpoint it resumes, or drawn from run.seed.
void fill_training_state(const Launch& launch, TrainingState& state);

}  // namespace lockstep::train
