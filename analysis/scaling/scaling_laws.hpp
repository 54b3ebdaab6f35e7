// The laws of scaling, fitted to the points of a series.
#pragma once

#include <vector>

#include "analysis/scaling/scaling.hpp"

namespace lockstep::analysis {

// Adds the laws that were asked for, or the usual ones, to the series.
void fit_laws(ScalingSeries& series, const std::vector<Measurement>& all, const ScalingOptions& options);

// How much more work a step of `run` does than one of `base`, of imported runs the whole run: by tokens, or, where they
// are not known, by the batch; 1 where that is not known either.
double work_ratio(const Measurement& run, const Measurement& base);

}  // namespace lockstep::analysis
