// The memory plan against what a launch has, and against what it then allocates.
#pragma once

namespace lockstep::train {

struct Launch;
struct TrainingState;
class Pipeline;

// Collective, before anything is allocated. Usage error where the ranks of a device plan more than it has free; on a
// CPU, the ranks of a node.
void check_free_memory(const Launch& launch);

// What is allocated must be what was planned: both come from the same code.
void check_memory_plan(const Launch& launch, const TrainingState& state, const Pipeline& pipeline);

// Collective. One line for each stage of the pipeline; ranks of a stage differ little.
void log_memory_plan(const Launch& launch);

}  // namespace lockstep::train
