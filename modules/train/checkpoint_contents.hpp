// What a checkpoint holds of a run: the tensors that each rank contributes, and the state beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "train/launch.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

// Parameters and optimizer state, as far as this rank holds them; for saving and for loading.
std::vector<checkpoint::Entry> checkpoint_entries(const TrainingState& state, const layout::Devices& devices);

checkpoint::Contents checkpoint_contents(const Launch& launch, const TrainingState& state, std::int64_t step);

}  // namespace lockstep::train
