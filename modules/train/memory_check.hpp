// Checks the memory plan against what a launch has, and against what it allocates.
#pragma once

namespace lockstep::train {

struct Launch;
struct TrainingState;
class GradientExchange;
class Pipeline;

// Collective, before allocating. Usage error if the ranks of a device (on a CPU, of a node) plan more than it has free.
void check_free_memory(const Launch& launch);
// Collective, under the watchdog. The same on GPUs once more, after a first message in every group: NCCL allocates
// buffers then.
void check_memory_beside_messages(const Launch& launch);

// Allocation must equal the plan: both come from the same code.
void check_memory_plan(const Launch& launch, const TrainingState& state, const GradientExchange& exchange,
                       const Pipeline& pipeline);

// Collective. One line per pipeline stage: its rank that plans most.
void log_memory_plan(const Launch& launch);

}  // namespace lockstep::train
