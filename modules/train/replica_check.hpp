// Replicas must stay bit-identical: a difference points to faulty hardware or a bug.
#pragma once

#include <cstdint>

#include "train/launch.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

// Steps between checks; checkpoints are checked too, since their parts come from different replicas.
constexpr std::int64_t replica_check_every = 100;

// Collective. Compares checksums of parameters, and of optimizer state if every replica has all of it. A fault, the
// same on all ranks, names two ranks that differ.
void check_replicas(const Launch& launch, const TrainingState& state, std::int64_t step);

}  // namespace lockstep::train
