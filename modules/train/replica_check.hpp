// Replicas must stay equal bit by bit: a difference points to faulty hardware or a bug.
#pragma once

#include <cstdint>

#include "train/launch.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

// Steps between two checks; each checkpoint is checked too, since its parts come from different replicas.
constexpr std::int64_t replica_check_every = 100;

// Collective. Compares checksums of parameters, and of optimizer state where every replica has it all. A fault, the
// same on all ranks, names two ranks that differ.
void check_replicas(const Launch& launch, const TrainingState& state, std::int64_t step);

}  // namespace lockstep::train
