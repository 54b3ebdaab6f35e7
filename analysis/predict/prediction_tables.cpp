// A prediction and its comparison as tables.
#include <fmt/format.h>

#include <cmath>

#include "analysis/predict/prediction.hpp"

namespace lockstep::analysis {
namespace {

Cell whole(double value) {
    return static_cast<std::int64_t>(std::llround(value));
}

std::string digits(double value) {
    if (!std::isfinite(value)) return "-";
    const double size = std::abs(value);
    return fmt::format("{:.{}f}", value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

Cell median_cell(const Range& range, double factor) {
    if (!std::isfinite(range.median)) return {};
    return digits(range.median * factor);
}

Cell range_cell(const Range& range, double factor) {
    if (!std::isfinite(range.low) || !std::isfinite(range.high)) return {};
    return fmt::format("{} to {}", digits(range.low * factor), digits(range.high * factor));
}

double factor_of(const std::string& unit) {
    return unit == "run" ? 1 : 1e3;
}
std::string unit_words(const std::string& unit) {
    return unit == "run" ? "run, s" : "step, ms";
}
std::string level_words() {
    return fmt::format("{:g} % interval", 100 * prediction_level);
}

}  // namespace

Table prediction_table(const PredictedCurve& curve, const std::string& unit) {
    Table table({{"ranks", "ranks"},
                 {"nodes", "nodes"},
                 {"batch", "batch"},
                 {"seconds", unit_words(unit)},
                 {"interval", level_words()},
                 {"rate", "tokens/s"},
                 {"speedup", "speedup"},
                 {"efficiency", "efficiency, %"},
                 {"efficiency_interval", level_words()},
                 {"share", "communication, %"},
                 {"share_interval", level_words()}});
    for (const CurvePoint& point : curve.points)
        table.add_row({whole(point.ranks), whole(point.nodes), whole(point.batch),
                       median_cell(point.seconds, factor_of(unit)), range_cell(point.seconds, factor_of(unit)),
                       point.tokens_per_second.median > 0 ? known_whole(point.tokens_per_second.median) : Cell(),
                       median_cell(point.speedup, 1), median_cell(point.efficiency, 100),
                       range_cell(point.efficiency, 100), median_cell(point.communication_share, 100),
                       range_cell(point.communication_share, 100)});
    return without_empty_columns(table);
}

Table parts_table(const PredictedCurve& curve, const std::string& unit) {
    std::vector<Column> columns = {{"ranks", "ranks"}};
    if (!curve.points.empty())
        for (const auto& part : curve.points.front().parts)
            columns.push_back({part.first, fmt::format("{}, {}", part.first, unit == "run" ? "s" : "ms"), 3});
    Table table(columns);
    for (const CurvePoint& point : curve.points) {
        std::vector<Cell> cells = {whole(point.ranks)};
        for (const auto& part : point.parts) cells.push_back(known(part.second, factor_of(unit)));
        table.add_row(std::move(cells));
    }
    return table;
}

Table numbers_table(const PredictionFile& prediction) {
    Table table({{"number", "number"},
                 {"believed", "prior"},
                 {"value", "posterior"},
                 {"interval", level_words()},
                 {"from", "comes from"}});
    for (const auto& one : prediction.scaling.numbers)
        table.add_row({one.title, fmt::format("{:.3g}", one.believed), fmt::format("{:.3g}", one.value.median),
                       fmt::format("{:.3g} to {:.3g}", one.value.low, one.value.high),
                       one.measured ? "the runs" : "mostly the prior"});
    return table;
}

Table left_out_table(const PredictionFile& prediction) {
    const double factor = factor_of(prediction.unit);
    Table table({{"ranks", "ranks"},
                 {"batch", "batch"},
                 {"measured", "measured, " + unit_words(prediction.unit)},
                 {"predicted", "predicted from the others"},
                 {"error", "error, %", 1}});
    for (const auto& one : prediction.scaling.left_out)
        table.add_row({whole(one.ranks), whole(one.batch), digits(one.measured * factor),
                       digits(one.predicted * factor), 100 * one.error});
    return table;
}

Table comparison_table(const ComparedCurve& curve, const std::string& unit) {
    const double factor = factor_of(unit);
    Table table({{"ranks", "ranks"},
                 {"runs", "runs"},
                 {"measured", "measured, " + unit_words(unit)},
                 {"predicted", "predicted"},
                 {"interval", level_words()},
                 {"error", "error, %", 1},
                 {"inside", "in the interval"},
                 {"used", "used in fit"}});
    for (const ComparedPoint& point : curve.points)
        table.add_row({whole(point.ranks), static_cast<std::int64_t>(point.runs.size()),
                       digits(point.measured * factor), median_cell(point.predicted, factor),
                       range_cell(point.predicted, factor), 100 * point.error, point.inside ? "yes" : "no",
                       point.used ? "yes" : "no"});
    return table;
}

Table prediction_rows(const PredictionFile& prediction) {
    std::vector<Column> columns = {{"kind", ""}, {"ranks", ""}, {"nodes", ""}, {"batch", ""}, {"unit", ""}};
    for (const CurveFigure& figure : curve_figures)
        for (const char* end : {"_low", "_median", "_high"}) columns.push_back({std::string(figure.name) + end, ""});
    Table table(columns);
    for (const PredictedCurve& curve : prediction.scaling.curves)
        for (const CurvePoint& point : curve.points) {
            std::vector<Cell> cells = {std::string(curve.request.kind == CurveKind::strong ? "strong" : "weak"),
                                       whole(point.ranks), whole(point.nodes), whole(point.batch), prediction.unit};
            for (const CurveFigure& figure : curve_figures) {
                const Range& range = point.*figure.range;
                const bool said = range.median > 0;
                for (const double value : {range.low, range.median, range.high})
                    cells.push_back(said ? known(value) : Cell());
            }
            table.add_row(std::move(cells));
        }
    return table;
}

}  // namespace lockstep::analysis
