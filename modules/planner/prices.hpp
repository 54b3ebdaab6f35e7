// What a layout costs: memory and time of a step, by the model that knows most about the program and the machine.
#pragma once

#include <string>

#include "planner/hardware.hpp"
#include "planner/job.hpp"
#include "planner/step_time.hpp"

namespace lockstep::planner {

struct Price {
    StepTime time;
    double memory = 0, room = 0;  // bytes a device; room: what may be used of it
    std::string why_not;          // "" where it fits
};
Price price(const Hardware& hardware, const Job& job, const Layout& layout, double memory_limit);

}  // namespace lockstep::planner
