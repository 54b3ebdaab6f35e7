// A predicted curve as a band, with the measured points beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/colours.hpp"
#include "analysis/report/plots.hpp"
#include "analysis/report/tics.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

using Shape = Style::Shape;
const Style band_style{Shape::band, "#3A8FC4", 1, 1, 7, 0.8, 0.35};
const Style line_of_median{Shape::line, "#0072B2", 2.2, 1};
const Style line_of_ideal{Shape::line, frame_colour, 1.4, 3};
const Style used_points{Shape::points, "#000000", 2, 1, 7, 1.0};
const Style new_points{Shape::points, "#D55E00", 2, 1, 9, 1.3};

struct Measured {
    double ranks, value;
    bool used;
};

struct Drawing {
    std::string name, title, caption, axis, column;
    double factor = 1;
    std::vector<Measured> measured;
    std::vector<std::vector<double>> ideal;
    bool logarithmic = false;
    double highest = 0;  // of a linear axis, which begins at 0
};

Plot plot_of(const Drawing& drawing, const PredictedCurve& curve, Range CurvePoint::*range) {
    if (curve.points.size() < 2)
        return Plot::without("the prediction has fewer than two numbers of ranks.", drawing.name, drawing.title);
    Curves curves;
    curves.plot.name = drawing.name;
    curves.plot.title = drawing.title;
    curves.plot.caption = drawing.caption;
    std::vector<double> ranks;
    Block band{"predicted", {"ranks", drawing.column, "low", "high"}, {}};
    for (const CurvePoint& point : curve.points) {
        const Range& value = point.*range;
        ranks.push_back(point.ranks);
        band.rows.push_back(
            {point.ranks, value.median * drawing.factor, value.low * drawing.factor, value.high * drawing.factor});
    }
    const std::string interval = fmt::format("{:g} % interval", 100 * prediction_level);
    curves.add(band, band_style, interval, "", "1:3:4");
    curves.add({"ideal", {"ranks", drawing.column}, drawing.ideal}, line_of_ideal, "ideal", "ideal");
    curves.add(band, line_of_median, "predicted", "predicted", "1:2");
    for (const bool upper : {false, true}) {
        curves.plot.curves.push_back({(upper ? "upper end of the " : "lower end of the ") + interval, {}});
        for (const auto& row : band.rows) curves.plot.curves.back().points.emplace_back(row[0], row[upper ? 3 : 2]);
    }
    for (const bool used : {true, false}) {
        Block block{used ? "measured, used" : "measured, not used", {"ranks", drawing.column}, {}};
        for (const Measured& point : drawing.measured)
            if (point.used == used) block.rows.push_back({point.ranks, point.value * drawing.factor});
        for (const auto& row : block.rows) ranks.push_back(row[0]);
        const char* title = used ? "measured, used for the prediction" : "measured, not used for it";
        curves.add(block, used ? used_points : new_points, title, title);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const AxisRange scale = drawing.logarithmic ? around(curves.values(), true) : AxisRange{0, drawing.highest};
    return curves.done("ranks", drawing.axis, rank_axis(ranks) + axis(scale, Side::left));
}

}  // namespace

std::vector<Plot> prediction_plots(const PredictedCurve& curve, const ComparedCurve& compared,
                                   const PredictionFile& prediction, const std::string& suffix) {
    const bool strong = curve.request.kind == CurveKind::strong, run = prediction.unit == "run";
    Drawing time, efficiency, share;
    time.name = "predicted-time" + suffix;
    time.title = "Time predicted and measured, " + compared.title;
    double shortest = INFINITY;
    for (const CurvePoint& point : curve.points) shortest = std::min(shortest, point.seconds.median);
    const bool seconds = run || !(shortest < 1), microseconds = !run && shortest < 1e-3;
    time.axis = fmt::format("{} per {}", seconds ? "s" : microseconds ? "\xC2\xB5s" : "ms", prediction.unit);
    time.column = seconds ? "seconds" : microseconds ? "microseconds" : "milliseconds";
    time.factor = seconds ? 1 : microseconds ? 1e6 : 1e3;
    time.caption =
        fmt::format("The slowest rank's time per {} over the number of ranks, both axes logarithmic.", prediction.unit);
    time.logarithmic = true;
    efficiency.name = "predicted-efficiency" + suffix;
    efficiency.title = "Efficiency predicted and measured, " + compared.title;
    efficiency.axis = efficiency.column = "efficiency";
    efficiency.caption = fmt::format("Speedup over the {:g} rank{} of the base case, over the ideal speedup.",
                                     curve.request.base_ranks, plural(curve.request.base_ranks));
    const double base = curve.request.base_seconds;
    double highest = 1;
    for (const CurvePoint& point : curve.points) {
        const double ideal = strong ? base * curve.request.base_ranks / point.ranks : base;
        time.ideal.push_back({point.ranks, ideal * time.factor});
        efficiency.ideal.push_back({point.ranks, 1});
        highest = std::max(highest, point.efficiency.high);
    }
    for (const ComparedPoint& point : compared.points) {
        time.measured.push_back({point.ranks, point.measured, point.used});
        const double times = strong ? point.ranks / curve.request.base_ranks : 1;
        efficiency.measured.push_back({point.ranks, base / point.measured / times, point.used});
        highest = std::max(highest, efficiency.measured.back().value);
    }
    efficiency.highest = highest * 1.05;
    share.name = "predicted-communication" + suffix;
    share.title = "Share of communication, predicted, " + compared.title;
    share.axis = "share of the time";
    share.column = "share";
    share.caption = "Sending, receiving and waiting for other ranks, as a share of the time.";
    share.highest = 1;
    return {plot_of(time, curve, &CurvePoint::seconds), plot_of(efficiency, curve, &CurvePoint::efficiency),
            plot_of(share, curve, &CurvePoint::communication_share)};
}

}  // namespace lockstep::analysis
