// Remarks that figures of all steps and of those after the warm-up share.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::analysis {

std::string unfinished_sentence(std::int64_t last_step);
std::string repeated_sentence(std::size_t steps);
std::string missing_sentence(double steps);
double steps_between(std::int64_t one, std::int64_t next);  // how many are missing between two rows

}  // namespace lockstep::analysis
