// Unknowns from measurements and priors: maximum a posteriori values, and samples that show their uncertainty. An
// unknown that the measurements do not constrain keeps its prior's spread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::analysis {

struct FitProblem {
    // The normal prior of each unknown.
    std::vector<double> mean, deviation;
    // Each measurement and its standard deviation.
    std::vector<double> measured, measured_deviation;
    // The measurements that the unknowns predict.
    std::function<std::vector<double>(const std::vector<double>&)> predict;
};

// The unknowns that minimise Σ ((predicted − measured) ÷ deviation)² + Σ ((unknown − mean) ÷ deviation)², by
// Levenberg and Marquardt's method.
std::vector<double> most_probable(const FitProblem& problem);

// `count` vectors of unknowns: each the maximum a posteriori for measurements and priors perturbed by their deviations
// ("randomized maximum likelihood": Oliver, He and Reynolds 1996; exact where `predict` is linear). The same
// seed gives the same draws.
std::vector<std::vector<double>> draw_unknowns(const FitProblem& problem, std::size_t count, std::uint64_t seed);

}  // namespace lockstep::analysis
