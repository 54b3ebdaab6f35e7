// What `lockstep plan` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/table.hpp"
#include "plan/advice.hpp"
#include "plan/judgement.hpp"
#include "plan/measured_table.hpp"

namespace lockstep::commands {

struct PlanOutput {
    config::Machine machine;
    cost::Job job;
    plan::Limits limits;
    std::vector<std::int64_t> counts;
    plan::SearchResult result;
    std::int64_t top = 10;
    // The best layout; of several device counts, that of the recommended count. There must be one.
    plan::Candidate chosen() const;
};
std::string print_plan(const PlanOutput& plan, TableFormat format);
std::string why_none(const PlanOutput& plan);  // why nothing fits, and what exceeds its limit

std::string print_judgement(const config::Machine& machine, const std::vector<plan::MeasuredRow>& rows,
                            const plan::Judgement& judgement, TableFormat format);

}  // namespace lockstep::commands
