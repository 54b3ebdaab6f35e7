// What `lockstep plan` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/table.hpp"
#include "plan/advice.hpp"
#include "plan/measured_table.hpp"

namespace lockstep::commands {

struct PlanOutput {
    config::Machine machine;
    cost::Job job;
    plan::Limits limits;
    std::vector<std::int64_t> counts;
    plan::SearchResult result;
    std::int64_t top = 10;
    // The best, or with several counts the recommended count's best. There is one.
    plan::Candidate chosen() const;
};
std::string print_plan(const PlanOutput& plan, TableFormat format);
std::string why_none(const PlanOutput& plan);  // where nothing fits: which number is too large

std::string print_judgement(const config::Machine& machine, const std::vector<plan::MeasuredRow>& rows,
                            const plan::Judgement& judgement, TableFormat format);

}  // namespace lockstep::commands
