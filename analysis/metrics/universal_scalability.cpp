// Gunther's Universal Scalability Law: contention for what is shared, and the cost of keeping ranks in agreement.
#include <fmt/format.h>

#include <cmath>

#include "analysis/metrics/law.hpp"
#include "base/least_squares.hpp"

namespace lockstep::analysis {
namespace {

enum : std::size_t { rate, contention, coherence };

// p/X = (1 + σ·(p − 1) + κ·p·(p − 1))/λ = a + b·p + c·p·(p − 1) with σ = b/(a + b), λ = 1/(a + b), κ = c/(a + b):
// linear, and all three within their bounds where none of a, b, c is negative.
std::vector<double> solve_law(const FitData& data) {
    std::vector<std::vector<double>> columns(3);
    std::vector<double> inverse_rate_of_a_rank;
    for (std::size_t i = 0; i < data.ranks.size(); ++i) {
        const double p = data.ranks[i];
        columns[0].push_back(1);
        columns[1].push_back(p);
        columns[2].push_back(p * (p - 1));
        inverse_rate_of_a_rank.push_back(p / data.values[i]);
    }
    const std::vector<double> solved = least_squares(relative_fit(columns, inverse_rate_of_a_rank));
    // Without a and b nothing is done on one rank: X falls as fast as the ranks grow.
    if (solved.empty() || !(solved[0] + solved[1] > 0)) return {};
    const double one_rank = solved[0] + solved[1];
    return {1 / one_rank, solved[1] / one_rank, solved[2] / one_rank};
}

double rate_at(const std::vector<double>& parameters, double p) {
    return parameters[rate] * p / (1 + parameters[contention] * (p - 1) + parameters[coherence] * p * (p - 1));
}

double peak_of(double sigma, double kappa) {
    return std::sqrt((1 - sigma) / kappa);
}

// Where the rate is highest, unless that is a guess.
void add_peak(Fit& fit, const std::vector<FitPoint>& points, std::size_t fewest_to_predict) {
    const double sigma = fit.parameters[contention].value, kappa = fit.parameters[coherence].value;
    if (!(kappa > 1e-12)) {
        fit.remarks.emplace_back("κ is at its lower bound, 0: the law has no peak.");
        return;
    }
    const FitData data = fit_data(usable_points(points));
    const double peak = peak_of(sigma, kappa), largest = data.ranks.back();
    const bool measured = peak <= largest;
    if (!measured && data.different_ranks() < fewest_to_predict) {
        fit.remarks.push_back(
            fmt::format("The peak lies beyond the {} ranks measured; locating it needs {} different numbers of ranks.",
                        largest, fewest_to_predict));
        return;
    }
    if (peak > farthest_prediction * largest) {
        fit.remarks.push_back(fmt::format("The peak lies beyond {} times the {} ranks measured, too far to locate.",
                                          farthest_prediction, largest));
        return;
    }
    Parameter parameter{"peak_ranks", "ranks of the highest rate", peak, {}};
    // σ and κ pull against each other: both ends taken at their worst give a wide interval, never a narrow one.
    const Interval of_sigma = fit.parameters[contention].interval, of_kappa = fit.parameters[coherence].interval;
    if (of_kappa.known() && of_kappa.low > 0)
        parameter.interval = {peak_of(of_sigma.high, of_kappa.high), peak_of(of_sigma.low, of_kappa.low)};
    fit.parameters.push_back(std::move(parameter));
}

}  // namespace

Fit fit_universal_scalability(const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    Fit fit{"universal_scalability", "Universal Scalability Law", "X(p) = λ·p/(1 + σ·(p − 1) + κ·p·(p − 1))",
            "Gunther 1993, \"A simple capacity model of massively parallel transaction systems\""};
    Law law;
    law.name = "The Universal Scalability Law";
    law.fewest = 4;
    law.fewest_to_predict = 6;
    law.parameters = {{"rate_of_one_rank", "λ, rate of one rank", unknown, {}},
                      {"contention", "contention σ", unknown, {}},
                      {"coherence", "coherence κ", unknown, {}}};
    law.solve = solve_law;
    law.evaluate = rate_at;
    fit_law(fit, law, points, predict_at);
    if (!fit.refusal.empty()) return fit;
    if (fit.parameters[contention].value < 1e-9)
        fit.remarks.emplace_back("σ is at its lower bound, 0: no contention is seen, or the data are superlinear.");
    if (fit.parameters[contention].value > 1 - 1e-9)
        fit.remarks.emplace_back("σ is at its upper bound, 1: the rate does not grow with more ranks.");
    add_peak(fit, points, law.fewest_to_predict);
    return fit;
}

}  // namespace lockstep::analysis
