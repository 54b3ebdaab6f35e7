// A predicted curve as a band, with the measured points beside it.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/plots.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr const char* band_style = "lc rgb '#56B4E9' fs transparent solid 0.35 noborder";
constexpr const char* line_of_median = "lc rgb '#0072B2' lw 2.2 dt 1";
constexpr const char* line_of_ideal = "lc rgb '#555555' lw 1.4 dt 3";
constexpr const char* used_points = "lc rgb '#000000' lw 2 pt 7 ps 1.0";
constexpr const char* new_points = "lc rgb '#D55E00' lw 2 pt 9 ps 1.3";

struct Measured {
    double ranks, value;
    bool used;
};

struct Drawing {
    std::string name, title, caption, axis, column;
    double factor = 1;
    std::vector<Measured> measured;
    std::vector<std::vector<double>> ideal;
    std::string scale;  // gnuplot commands of the y axis
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
    curves.add(band, fmt::format("using 1:3:4 with filledcurves {}", band_style),
               fmt::format("{:g} % interval", 100 * prediction_level));
    curves.add({"ideal", {"ranks", drawing.column}, drawing.ideal}, fmt::format("with lines {}", line_of_ideal),
               "ideal");
    curves.add(band, fmt::format("using 1:2 with lines {}", line_of_median), "predicted");
    for (const bool used : {true, false}) {
        Block block{used ? "measured, used" : "measured, not used", {"ranks", drawing.column}, {}};
        for (const Measured& point : drawing.measured)
            if (point.used == used) block.rows.push_back({point.ranks, point.value * drawing.factor});
        for (const auto& row : block.rows) ranks.push_back(row[0]);
        curves.add(block, fmt::format("with points {}", used ? used_points : new_points),
                   used ? "measured, used for the prediction" : "measured, not used for it");
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return curves.done(axes("ranks", drawing.axis) + rank_tics(ranks) + drawing.scale);
}

}  // namespace

std::vector<Plot> prediction_plots(const PredictedCurve& curve, const ComparedCurve& compared,
                                   const PredictionFile& prediction, const std::string& suffix) {
    const bool strong = curve.request.kind == CurveKind::strong, run = prediction.unit == "run";
    Drawing time, efficiency, share;
    time.name = "predicted-time" + suffix;
    time.title = "Time predicted and measured, " + compared.title;
    time.axis = run ? "s, a run" : "ms, a step";
    time.column = run ? "seconds" : "milliseconds";
    time.factor = run ? 1 : 1e3;
    time.caption = fmt::format("The slowest rank's time of a {} over the number of ranks, both axes logarithmic.",
                               prediction.unit);
    time.scale = "set logscale y\nset format y '%g'\n";
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
    efficiency.scale = fmt::format("set yrange [0:{:g}]\n", highest * 1.05);
    share.name = "predicted-communication" + suffix;
    share.title = "Share of communication, predicted, " + compared.title;
    share.axis = "share of the time";
    share.column = "share";
    share.caption = "Sending, receiving and waiting for other ranks, as a share of the time.";
    share.scale = "set yrange [0:1]\n";
    return {plot_of(time, curve, &CurvePoint::seconds), plot_of(efficiency, curve, &CurvePoint::efficiency),
            plot_of(share, curve, &CurvePoint::communication_share)};
}

}  // namespace lockstep::analysis
