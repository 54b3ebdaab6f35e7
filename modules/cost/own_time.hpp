// The time of a training step of our own program, from the rates of a calibration: what the trainer does, operation by
// operation. docs/planner-own-program.md has the equations.
#pragma once

#include <cstdint>

#include "config/machine.hpp"
#include "config/run_description.hpp"
#include "cost/step_time.hpp"

namespace lockstep::cost {

// A step of batch.global sequences on so many ranks a node (all of them on one node where there are fewer). Without
// validations and checkpoints. Usage errors: machine without rates of the precision; a batch that does not divide.
StepTime own_step_time(const config::RunDescription& description, const config::Grid& grid, std::int64_t ranks_per_node,
                       const config::Machine& machine);

// Seconds until a checkpoint of values and optimizer state is on the disk, written by `nodes` nodes while training goes
// on.
double own_checkpoint_seconds(const config::RunDescription& description, std::int64_t nodes,
                              const config::Machine& machine);

}  // namespace lockstep::cost
