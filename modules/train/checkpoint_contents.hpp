// A checkpoint's contents: the tensors that each rank contributes, and the run's state.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "train/launch.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

// The parameters and optimizer state that this rank holds; for saving and loading.
std::vector<checkpoint::Entry> checkpoint_entries(const TrainingState& state, const layout::Devices& devices);
// Of these, what the run's checkpoints have.
std::vector<checkpoint::Entry> saved_entries(const Launch& launch, const TrainingState& state);

checkpoint::Contents checkpoint_contents(const Launch& launch, const TrainingState& state, std::int64_t step);

}  // namespace lockstep::train
