// A request to `lockstep plan`: the machine, how much of it, limits, and which layouts are allowed. From the section
// [plan] of a run description and from the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/key.hpp"
#include "cost/job.hpp"

namespace lockstep::plan {

struct PlanRequest {
    std::string hardware;              // shipped name or file
    std::string program = "lockstep";  // whose memory and time
    std::string gpus;                  // counts to compare, "1, 2, 4"
    std::int64_t nodes = 0;            // instead of gpus
    std::int64_t ranks_per_node = 0;   // 0: as many as a node has devices
    std::string within;                // "12h": time to finish
    double budget_gpu_hours = 0, memory_limit_gib = 0;
    config::PlanOrder by = config::PlanOrder::time;
    // Allowed values, "4, 8"; empty: all that are possible.
    std::string tensor, pipeline, context, micro, interleave, zero, sequence, recompute;
    std::vector<config::Key> keys();  // without "plan."
};

// [plan] of the file, and its [[plan.models]], which are the job's instead of [model].
PlanRequest read_plan_request(const std::string& path);
std::vector<cost::ModelLoad> read_plan_models(const std::string& path);

std::vector<std::int64_t> counts_of(const std::string& text, const std::string& key);  // "1, 2, 4"
std::vector<std::string> words_of(const std::string& text);
double seconds_of(const std::string& text, const std::string& key);  // "12h", "90m", "2d", "30s", "1d12h"

}  // namespace lockstep::plan
