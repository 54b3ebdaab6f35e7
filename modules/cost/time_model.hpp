// The time of a training step on a described machine: blocks and head of every stage, the pipeline's schedule (1F1B,
// interleaved), communication of replicas, the optimizer. docs/planner.md has the equations.
#pragma once

#include "config/machine.hpp"
#include "cost/job.hpp"
#include "cost/memory_model.hpp"
#include "cost/step_time.hpp"

namespace lockstep::cost {

StepTime described_step_time(const config::Machine& machine, const Job& job, const Layout& layout,
                             const MemoryUse& use);

}  // namespace lockstep::cost
