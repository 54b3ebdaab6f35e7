// One source of a mixture of data.
#pragma once

#include <string>
#include <vector>

namespace lockstep::config {

// {path = "a.h5", weight = 0.7}; the path may be a list.
struct WeightedPaths {
    std::vector<std::string> paths;
    double weight = 0;  // relative to the others'
};

}  // namespace lockstep::config
