// What a layout costs: memory and time of a step, using the most specific cost model. For our own program memory comes
// from the trainer's plan, and time from the machine's calibration where it has one.
#pragma once

#include <cstdint>
#include <string>

#include "config/machine.hpp"
#include "cost/job.hpp"
#include "cost/step_time.hpp"

namespace lockstep::cost {

struct Price {
    StepTime time;
    double memory = 0, room = 0;  // bytes of a device, or of a rank on processors; room: what may be used of it
    std::string why_not;          // "" where it fits
};
// The time, and why the layout is impossible, memory aside.
Price price_time(const config::Machine& machine, const Job& job, const Layout& layout);
// Adds the memory, which takes longer for our own program: some milliseconds.
void price_memory(Price& price, const config::Machine& machine, const Job& job, const Layout& layout,
                  double memory_limit);

std::int64_t ranks_per_node(const config::Machine& machine, const Job& job);

}  // namespace lockstep::cost
