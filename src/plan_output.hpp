// What `lockstep plan` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/table.hpp"
#include "planner/advice.hpp"
#include "planner/measured_table.hpp"

namespace lockstep::commands {

struct PlanOutput {
    planner::Hardware hardware;
    planner::Job job;
    planner::Limits limits;
    std::vector<std::int64_t> counts;
    planner::SearchResult result;
    std::int64_t top = 10;
    // The best, or with several counts the recommended count's best. There is one.
    planner::Candidate chosen() const;
};
std::string print_plan(const PlanOutput& plan, TableFormat format);
std::string why_none(const PlanOutput& plan);  // where nothing fits: which number is too large

std::string print_judgement(const planner::Hardware& hardware, const std::vector<planner::MeasuredRow>& rows,
                            const planner::Judgement& judgement, TableFormat format);

}  // namespace lockstep::commands
