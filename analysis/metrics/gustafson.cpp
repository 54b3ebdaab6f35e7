// Gustafson's law: more work on more ranks in the same time, a share of which is not divided.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/metrics/law.hpp"

namespace lockstep::analysis {
namespace {

// The value of the fewest ranks; the median where there are several. Data are by ranks.
double base_value(const FitData& data) {
    std::vector<double> base;
    for (std::size_t i = 0; i < data.ranks.size(); ++i)
        if (data.ranks[i] == data.ranks.front()) base.push_back(data.values[i]);
    return median(base);
}

}  // namespace

Fit fit_gustafson(const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    Fit fit{"gustafson", "Gustafson's law", "S(p) = p − a·(p − 1)", "Gustafson 1988, \"Reevaluating Amdahl's law\""};
    const FitData measured = fit_data(usable_points(points));
    const double base = measured.ranks.empty() ? 1 : measured.ranks.front();
    std::vector<FitPoint> relative = points;
    for (FitPoint& point : relative) point.value /= measured.ranks.empty() ? 1 : base_value(measured);
    Law law;
    law.name = fit.title;
    law.fewest = 3;
    law.fewest_to_predict = 4;
    law.parameters = {{"serial_share", "serial share a of the time", unknown, {}}};
    law.solve = [base](const FitData& data) -> std::vector<double> {
        // p − S = a·(p − 1), both sides divided by S, so that errors are relative.
        const double first = base_value(data);
        double product = 0, square = 0;
        for (std::size_t i = 0; i < data.ranks.size(); ++i) {
            const double p = data.ranks[i] / base, speedup = data.values[i] / first;
            product += (p - speedup) * (p - 1) / (speedup * speedup);
            square += (p - 1) * (p - 1) / (speedup * speedup);
        }
        return {std::clamp(product / square, 0.0, 1.0)};
    };
    law.evaluate = [base](const std::vector<double>& parameters, double ranks) {
        return ranks / base - parameters[0] * (ranks / base - 1);
    };
    fit_law(fit, law, relative, predict_at);
    if (!fit.refusal.empty()) return fit;
    if (base != 1) fit.remarks.push_back(fmt::format("p is in units of {} ranks.", base));
    if (fit.parameters[0].value < 1e-9)
        fit.remarks.emplace_back("a is at its lower bound, 0: the rate grows as fast as the ranks or faster.");
    if (fit.parameters[0].value > 1 - 1e-9)
        fit.remarks.emplace_back("a is at its upper bound, 1: the rate does not grow with more ranks.");
    return fit;
}

}  // namespace lockstep::analysis
