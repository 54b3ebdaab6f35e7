// Fits the costs of an operation (a call, a FLOP, a byte; none negative) to measured times.
#pragma once

#include <vector>

#include "config/machine_rates.hpp"

namespace lockstep::calibrate {

struct TimedOperation {
    double flop = 0, bytes = 0, seconds = 0;
};

// Minimizes the sum of squared relative errors. Without `with_overhead` a call itself costs nothing.
config::ProductRate fit_rate(const std::vector<TimedOperation>& timed, bool with_overhead);

}  // namespace lockstep::calibrate
