// The options that choose and read series, which `scaling` and `report` share.
#pragma once

#include <CLI/CLI.hpp>

#include "analysis/scaling/scaling.hpp"

namespace lockstep::analysis {

// --kind, --ignore, --base, --laws, --predict.
void add_scaling_options(CLI::App& command, ScalingOptions& options);

}  // namespace lockstep::analysis
