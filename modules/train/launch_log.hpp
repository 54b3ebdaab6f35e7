// What is logged about a launch before its first step.
#pragma once

#include "train/launch.hpp"

namespace lockstep::train {

// Collective: the program, the ranks and where they run, the grid, the model.
void log_launch(const Launch& launch);

}  // namespace lockstep::train
