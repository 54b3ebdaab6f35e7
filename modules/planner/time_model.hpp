// The time of a training step on a described machine: blocks and head of every stage, the pipeline's course (1F1B,
// interleaved), what replicas tell each other, the optimizer. docs/planner.md has the equations.
#pragma once

#include "planner/hardware.hpp"
#include "planner/job.hpp"
#include "planner/memory_model.hpp"
#include "planner/step_time.hpp"

namespace lockstep::planner {

StepTime described_step_time(const Hardware& hardware, const Job& job, const Layout& layout, const MemoryUse& use);

}  // namespace lockstep::planner
