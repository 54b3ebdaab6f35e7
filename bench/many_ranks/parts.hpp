// The parts of a run whose cost may grow with the number of ranks, each for one rank of a job of any size.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/run_description.hpp"

namespace lockstep::bench {

// Of one rank, per start, step, write …
struct Cost {
    double seconds = 0, received = 0, operations = 0;  // received: bytes
    std::optional<double> mebibytes = std::nullopt;    // where not of the whole part
};

// The run: 24 layers, 4 tensor-parallel ranks, 2 pipeline stages, and replicas of 8 ranks that divide the optimizer;
// 8 ranks a node.
constexpr int tensor_ranks = 4, stages = 2, ranks_per_node = 8;
config::RunDescription description_of(int ranks);
config::Grid grid_of(int ranks);
std::string host_of(int rank);

// checkpoint.cpp: first asks all ranks which tensors they hold, then measures what the rank in the middle does.
std::function<Cost()> ask_for_exchange_plan(int ranks);
std::function<Cost()> ask_for_resume(int ranks);

// start.cpp
Cost find_nodes(int ranks);
Cost make_grid(int ranks);
Cost log_rank_map(int ranks);
Cost plan_memory(int ranks);
Cost agree_on_a_failure(int ranks);
Cost pair_nodes(int ranks);  // doctor's

// steps.cpp
Cost start_of_trace(int ranks);
Cost trace_steps(int ranks);
Cost start_of_slow_ranks(int ranks);
Cost windows_of_slow_ranks(int ranks);

// watch.cpp: the watchdog's report. One rank, or half of them, are behind the others.
Cost report_one_behind(int ranks);
Cost report_half_behind(int ranks);

}  // namespace lockstep::bench
