// Amdahl's law: the same work on more ranks, a share of which no rank can take from another.
#include "analysis/metrics/law.hpp"
#include "base/least_squares.hpp"

namespace lockstep::analysis {
namespace {

// T(p) = a + b/p with a = T(1)·s and b = T(1)·(1 − s): linear, and s in [0, 1] where neither is negative.
std::vector<double> solve_amdahl(const FitData& data) {
    std::vector<double> inverse;
    for (const double ranks : data.ranks) inverse.push_back(1 / ranks);
    const std::vector<double> ones(data.ranks.size(), 1.0);
    const std::vector<double> solved = least_squares(relative_fit({ones, inverse}, data.values));
    if (solved.empty()) return {};
    const double one_rank = solved[0] + solved[1];
    return {solved[0] / one_rank, one_rank};
}

double amdahl_seconds(const std::vector<double>& parameters, double ranks) {
    return parameters[1] * (parameters[0] + (1 - parameters[0]) / ranks);
}

}  // namespace

Fit fit_amdahl(const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    Fit fit{"amdahl", "Amdahl's law", "T(p) = T(1)·(s + (1 − s)/p)",
            "Amdahl 1967, \"Validity of the single processor approach\""};
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
        fit.remarks.emplace_back("s is at its lower bound, 0: the time falls as fast as 1/p or faster (superlinear).");
    if (fit.parameters[0].value > 1 - 1e-9)
        fit.remarks.emplace_back("s is at its upper bound, 1: the time does not fall with more ranks.");
    return fit;
}

}  // namespace lockstep::analysis
