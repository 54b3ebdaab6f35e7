// Rates from measured times: the three costs of an operation, none negative, that come nearest to what was measured.
#pragma once

#include <vector>

#include "config/machine_rates.hpp"

namespace lockstep::calibrate {

struct TimedOperation {
    double flop = 0, bytes = 0, seconds = 0;
};

// The least sum of squared relative errors. With `with_overhead` false the time of nothing is nothing.
config::ProductRate fit_rate(const std::vector<TimedOperation>& timed, bool with_overhead);

}  // namespace lockstep::calibrate
