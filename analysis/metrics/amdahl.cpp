// Amdahl's law: the same work on more ranks, a share of which no rank can take from another.
#include "analysis/metrics/law.hpp"

namespace lockstep::analysis {
namespace {

// T(p) = a + b/p with a = T(1)·s and b = T(1)·(1 − s): linear, and s in [0, 1] where neither is negative. Rows are
// divided by the measured seconds, so that errors are relative.
std::vector<double> solve_amdahl(const FitData& data) {
    std::vector<double> constant, inverse;
    for (std::size_t i = 0; i < data.ranks.size(); ++i) {
        constant.push_back(1 / data.values[i]);
        inverse.push_back(1 / (data.values[i] * data.ranks[i]));
    }
    const std::vector<double> solved =
        least_squares_not_negative({constant, inverse}, std::vector<double>(constant.size(), 1.0));
    if (solved.empty()) return {};
    const double one_rank = solved[0] + solved[1];
    return {solved[0] / one_rank, one_rank};
}

double amdahl_seconds(const std::vector<double>& parameters, double ranks) {
    return parameters[1] * (parameters[0] + (1 - parameters[0]) / ranks);
}

}  // namespace

Fit fit_amdahl(const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    Fit fit;
    fit.law = "amdahl";
    fit.title = "Amdahl's law";
    fit.formula = "T(p) = T(1)·(s + (1 − s)/p)";
    fit.source = "Amdahl 1967, \"Validity of the single processor approach\"";
    Law law;
    law.name = fit.title;
    law.fewest = 3;
    law.fewest_to_predict = 4;
    law.parameters = {{"serial_share", "serial share s", unknown, {}}, {"seconds_on_one_rank", "T(1), s", unknown, {}}};
    law.solve = solve_amdahl;
    law.evaluate = amdahl_seconds;
    fit_law(fit, law, points, predict_at);
    if (!fit.refusal.empty()) return fit;
    // Exact data come out a rounding beside the bound, or at it.
    if (fit.parameters[0].value < 1e-9)
        fit.remarks.emplace_back("s is at 0, its least: the time falls as fast as 1/p or faster (superlinear).");
    if (fit.parameters[0].value > 1 - 1e-9)
        fit.remarks.emplace_back("s is at 1, its most: the time does not fall with more ranks.");
    return fit;
}

}  // namespace lockstep::analysis
