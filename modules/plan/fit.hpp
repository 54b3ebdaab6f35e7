// A machine's description fitted to measured steps: least squares of the logarithms of the step times, and of the
// memory, by Levenberg and Marquardt's method.
#pragma once

#include <string>
#include <vector>

#include "config/machine.hpp"
#include "plan/judgement.hpp"
#include "plan/measured_table.hpp"

namespace lockstep::plan {

// The numbers that are fitted, by their path in the file; the others keep their values.
const std::vector<std::string>& fitted_time_keys();
const std::vector<std::string>& fitted_memory_keys();

// Flagged rows and rows that ran out of memory take no part in the times. A usage error where there are fewer rows than
// numbers to fit.
config::Machine fit(const config::Machine& start, const std::vector<MeasuredRow>& rows);

// Every row predicted by a fit to the others: rows are dealt to `folds` folds in turn (row i to fold i mod folds, of
// those that count; the others are predicted by the fit to all).
Judgement cross_validate(const config::Machine& start, const std::vector<MeasuredRow>& rows, std::size_t folds);

}  // namespace lockstep::plan
