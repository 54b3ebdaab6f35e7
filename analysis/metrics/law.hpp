// Common to all fits: which points count, intervals, predictions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "analysis/metrics/fits.hpp"

namespace lockstep::analysis {

// Points of a fit by ranks. Ranks and values stay apart, since a resample changes the values alone.
struct FitData {
    std::vector<double> ranks, values;
    std::size_t different_ranks() const;
};

struct Law {
    std::string name;                               // as a sentence begins with it: "Amdahl's law"
    std::size_t fewest = 0, fewest_to_predict = 0;  // different numbers of ranks
    std::vector<Parameter> parameters;              // names and titles, in the order of `solve`
    // The parameters; none where there is no solution.
    std::function<std::vector<double>(const FitData&)> solve;
    std::function<double(const std::vector<double>& parameters, double ranks)> evaluate;
    // What the parameters' intervals are made of, where that is not `solve`: the parameters of resampled data, given
    // those of the measured data and those that `solve` finds for the resampled data.
    std::function<std::vector<double>(const FitData&, const std::vector<double>& fitted,
                                      const std::vector<double>& solved)>
        resampled_parameters;
};

// Fills in everything of `fit` but its names and remarks.
void fit_law(Fit& fit, const Law& law, const std::vector<FitPoint>& points, const std::vector<double>& predict_at);

// The points that count, by ranks; those of the same ranks in the order given.
std::vector<FitPoint> usable_points(const std::vector<FitPoint>& points);
FitData fit_data(const std::vector<FitPoint>& points);

}  // namespace lockstep::analysis
