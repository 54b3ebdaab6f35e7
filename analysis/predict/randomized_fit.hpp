// Unknown numbers from measurements and from what was believed before: the most probable values, and draws that show
// how far they may be off. Where the measurements say nothing of an unknown its draws are as wide as what was believed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::analysis {

struct FitProblem {
    // What was believed before, of each unknown: a normal distribution.
    std::vector<double> mean, deviation;
    // Each measurement and its standard deviation.
    std::vector<double> measured, measured_deviation;
    // What the measurements would be, given the unknowns.
    std::function<std::vector<double>(const std::vector<double>&)> predict;
};

// The unknowns that make Σ ((predicted − measured) ÷ deviation)² + Σ ((unknown − mean) ÷ deviation)² least, by
// Levenberg and Marquardt's method.
std::vector<double> most_probable(const FitProblem& problem);

// `count` vectors of unknowns: each the most probable of measurements and beliefs that were moved at random by their
// deviations ("randomized maximum likelihood": Oliver, He and Reynolds 1996; exact where `predict` is linear). The same
// seed gives the same draws.
std::vector<std::vector<double>> draw_unknowns(const FitProblem& problem, std::size_t count, std::uint64_t seed);

}  // namespace lockstep::analysis
