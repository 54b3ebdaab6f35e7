#include "analysis/predict/randomized_fit.hpp"

#include <algorithm>

#include "base/least_squares.hpp"
#include "base/random.hpp"

namespace lockstep::analysis {
namespace {

using Vector = std::vector<double>;

constexpr double farthest = 8;  // standard deviations that an unknown may be from its prior mean

double limited(const FitProblem& problem, std::size_t j, double value) {
    return std::clamp(value, problem.mean[j] - farthest * problem.deviation[j],
                      problem.mean[j] + farthest * problem.deviation[j]);
}

Vector most_probable_from(const FitProblem& problem, const Vector& start) {
    // The prior pulls back what the search takes beyond the limits, where a prediction may overflow.
    const Residuals residuals = [&](const Vector& unknowns) {
        Vector within = unknowns;
        for (std::size_t j = 0; j < within.size(); ++j) within[j] = limited(problem, j, within[j]);
        Vector all = problem.predict(within);
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = (all[i] - problem.measured[i]) / problem.measured_deviation[i];
        for (std::size_t j = 0; j < unknowns.size(); ++j)
            all.push_back((unknowns[j] - problem.mean[j]) / problem.deviation[j]);
        return all;
    };
    Vector found = least_squares(residuals, start);
    for (std::size_t j = 0; j < found.size(); ++j) found[j] = limited(problem, j, found[j]);
    return found;
}

}  // namespace

Vector most_probable(const FitProblem& problem) {
    return most_probable_from(problem, problem.mean);
}

std::vector<Vector> draw_unknowns(const FitProblem& problem, std::size_t count, std::uint64_t seed) {
    const Vector start = most_probable(problem);
    const RandomStream random(seed, "randomized fit");
    std::uint64_t index = 0;
    std::vector<Vector> all;
    for (std::size_t draw = 0; draw < count; ++draw) {
        FitProblem moved = problem;
        for (std::size_t j = 0; j < moved.mean.size(); ++j)
            moved.mean[j] += moved.deviation[j] * random.normal(index++);
        for (std::size_t i = 0; i < moved.measured.size(); ++i)
            moved.measured[i] += moved.measured_deviation[i] * random.normal(index++);
        all.push_back(most_probable_from(moved, start));
    }
    return all;
}

}  // namespace lockstep::analysis
