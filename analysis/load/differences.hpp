// In what settings runs differ.
#pragma once

#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"

namespace lockstep::analysis {

struct Difference {
    std::string key;
    std::vector<std::string> values;  // each once, in the order of the runs; "" where a run does not say
};

// All settings that are not the same in all runs, by name; without the runs' names and folders.
std::vector<Difference> differences_of(const std::vector<const Measurement*>& runs);

}  // namespace lockstep::analysis
