// The options that choose and read series, which `scaling` and `report` share.
#pragma once

#include <string>
#include <vector>

#include "analysis/scaling/scaling.hpp"

namespace CLI {
class App;
}

namespace lockstep::analysis {

// --kind, --ignore, --base, --laws, --predict.
void add_scaling_options(CLI::App& command, ScalingOptions& options);
// --prediction.
void add_prediction_option(CLI::App& command, std::string& path);

// Without a series where the runs form none, unless one was asked for.
Scaling scaling_or_none(std::vector<Measurement> measurements, const ScalingOptions& options);

}  // namespace lockstep::analysis
