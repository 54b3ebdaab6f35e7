// Speedup, efficiency and the factors of efficiency, over the number of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/report/colours.hpp"
#include "analysis/report/plots.hpp"
#include "analysis/report/tics.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

using Reading = std::function<double(const ScalingPoint&)>;

// Whether the series has times; otherwise only rates are known.
bool is_timed(const ScalingSeries& series) {
    return std::isfinite(series.points[series.base].seconds_slowest);
}

// A series worth a curve.
bool is_law(const Fit& fit) {
    return fit.refusal.empty() && fit.at && fit.relative_error <= does_not_fit;
}

std::vector<double> ranks_of(const ScalingSeries& series) {
    std::vector<double> ranks;
    for (const ScalingPoint& point : series.points) ranks.push_back(static_cast<double>(point.ranks));
    return ranks;
}

Block block_of(const ScalingSeries& series, const std::string& title, const std::string& column,
               const Reading& reading) {
    Block block{title, {"ranks", column}, {}};
    for (const ScalingPoint& point : series.points)
        if (std::isfinite(reading(point))) block.rows.push_back({static_cast<double>(point.ranks), reading(point)});
    return block;
}

// 60 numbers of ranks, evenly spaced in their logarithm.
std::vector<double> along(double first, double last) {
    std::vector<double> ranks;
    for (int i = 0; i < 60; ++i) ranks.push_back(first * std::pow(last / first, i / 59.0));
    return ranks;
}

// Why a series has no curve; "" if it has one.
std::string too_few(const ScalingSeries& series, const Reading& reading) {
    std::size_t known = 0;
    for (const ScalingPoint& point : series.points) known += std::isfinite(reading(point)) ? 1 : 0;
    if (series.points.size() < 2) return "the series has only one number of ranks, and a curve needs two.";
    if (known < 2) return "fewer than two of its numbers of ranks have this figure.";
    return "";
}

// By time, the slowest rank's reading is what was measured, and averaging is the claim. By rates, the sum is what was
// measured, and the slowest rank's reading is what would be if all waited for it.
struct Readings {
    Reading measured, other;
    const char *measured_title, *other_title;
};

Readings speedups(const ScalingSeries& series) {
    const Reading slowest = [](const ScalingPoint& point) { return point.speedup_slowest; };
    const Reading average = [](const ScalingPoint& point) { return point.speedup_average; };
    if (is_timed(series))
        return {slowest, average, "measured: the slowest rank's time", "what averaging over ranks would give"};
    return {average, slowest, "measured: the rates of all ranks", "if all waited for the slowest rank"};
}

Readings efficiencies(const ScalingSeries& series) {
    const Readings titles = speedups(series);
    const bool timed = is_timed(series);
    return {
        [](const ScalingPoint& point) { return point.efficiency; },
        [timed](const ScalingPoint& point) { return timed ? point.efficiency_average : point.efficiency_slowest_rate; },
        titles.measured_title, titles.other_title};
}

using Shape = Style::Shape;
const Style measured{Shape::line_and_points, "#0072B2", 2.4, 1, 7, 0.9};
const Style averaged{Shape::line_and_points, "#D55E00", 2, 2, 6, 0.9};
const Style ideal{Shape::line, frame_colour, 1.4, 3};

}  // namespace

double law_speedup(const Fit& fit, const ScalingSeries& series, double ranks, double value) {
    const ScalingPoint& base = series.points[series.base];
    const double seconds = is_timed(series) ? base.seconds_slowest : 1 / base.tokens_per_second;
    if (fit.law == "gustafson") return value / fit.at(static_cast<double>(base.ranks));  // it was over the fewest ranks
    if (fit.law == "universal_scalability") return value * seconds;
    const bool grows = series.kind == Kind::weak && is_timed(series);
    return seconds / value * (grows ? ranks / static_cast<double>(base.ranks) : 1);
}

Plot speedup_plot(const ScalingSeries& series, const std::string& suffix) {
    const std::string title = "Speedup, " + series.title;
    const Readings readings = speedups(series);
    if (const std::string reason = too_few(series, readings.measured); !reason.empty())
        return Plot::without(reason, "speedup" + suffix, title);
    const auto base = static_cast<double>(series.points[series.base].ranks);
    std::vector<double> ranks = ranks_of(series);
    const double first = ranks.front(), largest = ranks.back();
    double last = largest;
    for (const Fit& fit : series.fits)
        if (is_law(fit))
            for (const Prediction& prediction : fit.predictions) {
                last = std::max(last, prediction.ranks);
                ranks.push_back(prediction.ranks);
            }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());

    Curves curves;
    curves.plot.name = "speedup" + suffix;
    curves.plot.title = title;
    double lowest = first / base, highest = last / base;
    const auto widen = [&](const Block& block) {
        for (const auto& row : block.rows) {
            if (row[1] > 0) lowest = std::min(lowest, row[1]);
            highest = std::max(highest, row[1]);
        }
    };
    Block line{"ideal", {"ranks", "speedup"}, {}};
    for (const double at : along(first, last)) line.rows.push_back({at, at / base});
    curves.add(line, ideal, "ideal", "ideal");
    const Block known = block_of(series, readings.measured_title, "speedup", readings.measured);
    widen(known);
    curves.add(known, measured, readings.measured_title, readings.measured_title);
    const Block other = block_of(series, readings.other_title, "speedup", readings.other);
    widen(other);
    curves.add(other, averaged, readings.other_title, readings.other_title);
    std::size_t laws = 0;
    for (const Fit& fit : series.fits) {
        if (!is_law(fit)) continue;
        Block law{fit.title, {"ranks", "speedup"}, {}};
        // Extrapolated only where the law predicts.
        auto end = static_cast<double>(series.points.back().ranks);
        for (const Prediction& prediction : fit.predictions) end = std::max(end, prediction.ranks);
        for (const double at : along(first, std::min(last, end))) {
            const double speedup = law_speedup(fit, series, at, fit.at(at));
            if (std::isfinite(speedup) && speedup > 0) law.rows.push_back({at, speedup});
        }
        if (law.rows.size() < 2) continue;
        static const std::vector<std::string> colours = {"#00855F", "#B0588A", "#000000", "#3A8FC4"};
        curves.add(law, {Shape::line, colours[laws % colours.size()], 1.6, 4 + static_cast<int>(laws % 2)},
                   "fitted: " + fit.title, "fitted: " + fit.title);
        ++laws;
    }
    curves.plot.caption = fmt::format(
        "Work per second relative to {} rank{}, over the number of ranks.{}{}", base, plural(base),
        last > largest ? fmt::format(" Beyond {} ranks nothing was measured; the fitted laws predict.", largest) : "",
        laws > 0 ? " The laws are fitted to all points, so they need not pass through the base." : "");
    // The ideal is a straight line on both scales; a linear one shows the loss best where there is room.
    if (last / first > 16)
        return curves.done("ranks", "speedup",
                           rank_axis(ranks) + axis({lowest / 1.2, highest * 1.2, true}, Side::left));
    const AxisRange across{0, last * 1.04, false, true};
    return curves.done(
        "ranks", "speedup",
        fmt::format("set xtics {}\nset xrange [0:{:.9g}]\n", tic_list(rank_tics(across, ranks)), across.high) +
            axis({0, highest * 1.06}, Side::left));
}

Plot efficiency_plot(const ScalingSeries& series, const std::string& suffix) {
    const std::string title = "Efficiency, " + series.title;
    const Readings readings = efficiencies(series);
    if (const std::string reason = too_few(series, readings.measured); !reason.empty())
        return Plot::without(reason, "efficiency" + suffix, title);
    const std::vector<double> ranks = ranks_of(series);
    Curves curves;
    curves.plot.name = "efficiency" + suffix;
    curves.plot.title = title;
    curves.plot.caption =
        "Speedup over the ideal speedup, over the number of ranks. 1 means that all added ranks were fully used.";
    curves.add({"ideal", {"ranks", "efficiency"}, {{ranks.front(), 1}, {ranks.back(), 1}}}, ideal, "ideal", "ideal");
    curves.add(block_of(series, readings.measured_title, "efficiency", readings.measured), measured,
               readings.measured_title, readings.measured_title);
    curves.add(block_of(series, readings.other_title, "efficiency", readings.other), averaged, readings.other_title,
               readings.other_title);
    double highest = 1;
    for (const Block& block : curves.plot.blocks)
        for (const auto& row : block.rows) highest = std::max(highest, row[1]);
    return curves.done("ranks", "efficiency", rank_axis(ranks) + axis({0, highest * 1.08}, Side::left));
}

Plot factor_plot(const ScalingSeries& series, const std::string& suffix) {
    const std::string title = "Efficiency factors, " + series.title;
    struct Factor {
        const char* title;
        double ScalingPoint::*value;
    };
    const std::vector<Factor> factors = {{"global efficiency", &ScalingPoint::global_efficiency},
                                         {"parallel efficiency", &ScalingPoint::parallel_efficiency},
                                         {"load balance", &ScalingPoint::load_balance},
                                         {"communication efficiency", &ScalingPoint::communication_efficiency},
                                         {"computation scaling", &ScalingPoint::computation_scaling}};
    const std::vector<double> ranks = ranks_of(series);
    Curves curves;
    curves.plot.name = "factors" + suffix;
    curves.plot.title = title;
    double highest = 1;
    curves.add({"ideal", {"ranks", "factor"}, {{ranks.front(), 1}, {ranks.back(), 1}}}, ideal, "ideal", "ideal");
    for (std::size_t i = 0; i < factors.size(); ++i) {
        const Block block = block_of(series, factors[i].title, "factor",
                                     [&](const ScalingPoint& point) { return point.*factors[i].value; });
        if (block.rows.size() < 2) continue;
        for (const auto& row : block.rows) highest = std::max(highest, row[1]);
        curves.add(block, line_and_points_style(i), factors[i].title, factors[i].title);
    }
    if (series.points.size() < 2)
        return Plot::without("the series has only one number of ranks, and a curve needs two.", curves.plot.name,
                             title);
    if (curves.plot.blocks.size() < 2)
        return Plot::without("neither computation nor communication was timed by rank.", curves.plot.name, title);
    curves.plot.caption =
        "Global efficiency = load balance × communication efficiency × computation scaling; the lowest of the three "
        "limits the scaling. Parallel efficiency is the product of the first two.";
    if (curves.plot.blocks.size() <= factors.size())
        curves.plot.caption += " The factors that are not drawn could not be measured.";
    return curves.done("ranks", "factor, 1 is ideal", rank_axis(ranks) + axis({0, highest * 1.08}, Side::left));
}

}  // namespace lockstep::analysis
