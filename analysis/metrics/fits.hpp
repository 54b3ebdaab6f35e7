// Laws of scaling fitted to measurements at several numbers of ranks. A law that needs more
// points is refused: `refusal` says how many. Fits minimise the squared relative errors. The equations,
// their sources and their limits are in docs/analysis-methods.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/metrics/statistics.hpp"

namespace lockstep::analysis {

// One number of ranks, in any order; several points may have the same. Points that are not finite or not positive are
// left out. `value`: seconds for the same work (strong), or work a second over that of the smallest number of ranks
// (weak; see each law). `samples`: what the value is the median of, in the order in which they were taken and in the
// value's unit; one value, or none, where there was one.
struct FitPoint {
    double ranks = 0, value = 0;
    std::vector<double> samples;
};

struct Parameter {
    std::string name;   // snake_case, the JSON key: serial_share
    std::string title;  // as a reader says it, with the unit
    double value = unknown;
    Interval interval;  // 95 %, bootstrap over the samples of each point; unknown where a point has fewer than 6
};

struct Prediction {
    double ranks = 0, value = 0;
    Interval interval;  // of the noise alone, assuming that the law holds there
};

struct Fit {
    std::string law;        // snake_case: amdahl, gustafson, universal_scalability, extra_p
    std::string title;      // Amdahl's law
    std::string formula;    // "T(p) = T(1)·(s + (1 − s)/p)"
    std::string source;     // paper and equation
    std::string refusal{};  // why there is none, in one sentence; then nothing below counts
    std::vector<Parameter> parameters{};
    double relative_error = unknown;     // mean over points of |fitted − measured| ÷ measured
    std::function<double(double)> at{};  // the fitted law at a number of ranks
    // At each number of ranks asked for; without those where that would be guessing, and why, in one sentence or more.
    std::string unit{};  // of `at` and the predictions, as a reader says it; set by who gives the points
    std::vector<Prediction> predictions{};
    std::string prediction_refusal{};
    std::vector<std::string> remarks{};  // a parameter at its bound, a peak too far out to be credible
};

// A prediction is made at no more than so many times the largest measured number of ranks, and at no fewer than the
// smallest ÷ so many.
inline constexpr double farthest_prediction = 8;

// A law with a larger mean error does not describe the points.
inline constexpr double does_not_fit = 0.2;

// T(p) = T(1)·(s + (1 − s)/p): strong scaling, values in seconds. Amdahl 1967. Unknowns T(1), s in [0, 1]; needs 3
// different numbers of ranks; 4 to predict. Parameters: serial_share, seconds_on_one_rank.
Fit fit_amdahl(const std::vector<FitPoint>& points, const std::vector<double>& predict_at);

// S(p) = p − a·(p − 1): weak scaling; values are rates, which are taken over that of the fewest ranks, and p counts in
// units of those ranks. `at` and the predictions give S and take a number of ranks. Gustafson 1988. One unknown a in
// [0, 1]; needs 3 numbers of ranks; 4 to predict. Parameter: serial_share.
Fit fit_gustafson(const std::vector<FitPoint>& points, const std::vector<double>& predict_at);

// X(p) = λ·p/(1 + σ·(p − 1) + κ·p·(p − 1)): values are rates (work a second), strong or weak. Gunther 1993. Unknowns
// λ, contention σ in [0, 1], coherence κ ≥ 0; needs 4 numbers of ranks; 6 to predict. Parameters: rate_of_one_rank,
// contention, coherence; and peak_ranks = √((1 − σ)/κ) where it lies within what was measured or may be predicted.
Fit fit_universal_scalability(const std::vector<FitPoint>& points, const std::vector<double>& predict_at);

// T(p) = c₀ + c₁·p^i·log₂^j(p), c₀ and c₁ ≥ 0, with i in {−1, −1/2, 0, 1/4, 1/3, 1/2 … 3} and j in {0, 1, 2} as in
// Calotoiu et al. 2013 (Extra-P's performance model normal form, one term): the (i, j) with the least error when each
// number of ranks in turn is left out. Values in seconds. Needs 5 numbers of ranks, to fit as to predict. Parameters:
// constant, coefficient, exponent, logarithm_exponent.
Fit fit_extra_p(const std::vector<FitPoint>& points, const std::vector<double>& predict_at);

}  // namespace lockstep::analysis
