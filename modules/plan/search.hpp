// All layouts of a job over given numbers of devices, priced and ranked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/prices.hpp"
#include "plan/job_time.hpp"
#include "plan/plan_request.hpp"

namespace lockstep::plan {

struct Limits {
    double seconds = 0, gpu_hours = 0, memory = 0;  // 0: none; memory: bytes a device
};

struct Candidate {
    std::int64_t devices = 0;
    cost::Layout layout;
    cost::Price price;
    double tokens_per_second = 0;
    JobTime job;           // 0 where the number of steps is not known, as
    double gpu_hours = 0;  // this
    std::string why_not;   // memory, deadline or budget; "" for none
};

struct SearchResult {
    std::vector<Candidate> fitting, excluded;  // the best first; at most a hundred fit of each count of devices
    bool more_may_fit = false;                 // some were not looked at, since there were enough
    std::int64_t examined = 0;                 // layouts whose time was computed
    std::vector<std::string> remarks;          // counts of devices for which no layout exists, and why
};

using Order = config::PlanOrder;

// `choice`: the values allowed on each axis; its gpus, nodes and limits are ignored.
SearchResult search(const config::Machine& machine, const cost::Job& job, const PlanRequest& choice,
                    const std::vector<std::int64_t>& devices, const Limits& limits, Order order);

}  // namespace lockstep::plan
