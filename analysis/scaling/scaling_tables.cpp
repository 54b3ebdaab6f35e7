#include "analysis/scaling/scaling_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/output/values.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

const char* kind_name(Kind kind) {
    return kind == Kind::strong ? "strong" : "weak";
}

bool any(const ScalingSeries& series, double ScalingPoint::*member) {
    return std::any_of(series.points.begin(), series.points.end(),
                       [&](const ScalingPoint& point) { return std::isfinite(point.*member); });
}

// "rank", "ranks"
std::string count_of(std::int64_t count, const char* one, const char* more) {
    return fmt::format("{} {}", with_commas(count), count == 1 ? one : more);
}

// Enough decimals for four digits of the smallest value, at most three.
int decimals_for(const ScalingSeries& series, double factor) {
    double least = unknown;
    for (const ScalingPoint& point : series.points)
        if (!(least <= point.seconds_slowest)) least = point.seconds_slowest;
    least *= factor;
    return least >= 1000 ? 1 : least >= 100 ? 2 : 3;
}

Cell interval_cell(const Interval& interval, double factor, int decimals) {
    if (!interval.known()) return {};
    return fmt::format("{:.{}f} to {:.{}f}", interval.low * factor, decimals, interval.high * factor, decimals);
}

}  // namespace

std::string series_heading(const ScalingSeries& series) {
    return fmt::format("{}{} scaling, {} ({})", series.kind == Kind::strong ? "Strong" : "Weak",
                       series.unit == "run" ? " (imported)" : "", series.title,
                       series.kind_reason == "as given" ? series.kind_reason : "inferred: " + series.kind_reason);
}

std::string base_sentence(const Scaling& scaling, const ScalingSeries& series) {
    const ScalingPoint& base = series.points[series.base];
    std::string words = fmt::format("Base case: {}", count_of(base.ranks, "rank", "ranks"));
    if (std::isfinite(base.seconds_slowest))
        words += series.unit == "run"
                     ? fmt::format(", {:.2f} s", base.seconds_slowest)
                     : fmt::format(", {:.{}f} ms a step", 1e3 * base.seconds_slowest, decimals_for(series, 1e3));
    if (std::isfinite(base.tokens_per_second))
        words += fmt::format(", {} tokens/s", with_commas(std::llround(base.tokens_per_second)));
    words += fmt::format(" ({})", scaling.measurements[base.runs.front()].path);
    if (base.runs.size() > 1) words += fmt::format(" and {} more", base.runs.size() - 1);
    return words + ".";
}

std::string warm_up_sentence(const Scaling& scaling, const ScalingSeries& series) {
    if (series.unit == "run") return "The times are of whole runs, as imported; no warm-up was dropped.";
    std::string words;
    std::int64_t disturbed = 0;
    for (const ScalingPoint& point : series.points)
        for (const std::size_t run : point.runs) {
            const Measurement& one = scaling.measurements[run];
            words += fmt::format("{}{} of {} on {}", words.empty() ? "" : ", ", one.warm_up,
                                 one.warm_up + one.disturbed + static_cast<std::int64_t>(one.steps.size()),
                                 count_of(point.ranks, "rank", "ranks"));
            disturbed += one.disturbed;
        }
    words = "Warm-up steps left out: " + words + ".";
    if (disturbed > 0)
        words += fmt::format(
            " Steps right after a checkpoint or a validation, in which ranks wait for its end: {} left out.",
            disturbed);
    return words + " Times are medians over the other steps, the slowest rank's in each.";
}

Table time_table(const ScalingSeries& series) {
    const bool run = series.unit == "run";
    const double factor = run ? 1 : 1e3;
    const int decimals = decimals_for(series, factor);
    const std::string unit = run ? "s" : "ms";
    const bool timed = any(series, &ScalingPoint::seconds_slowest);
    const bool averaged = any(series, &ScalingPoint::seconds_average);
    const bool interval = std::any_of(series.points.begin(), series.points.end(),
                                      [](const auto& point) { return point.seconds_interval.known(); });
    std::vector<Column> columns = {{"ranks", "ranks"}, {"runs", "runs"}};
    if (timed) columns.push_back({"slowest", (run ? "run, " : "step, ") + unit, decimals});
    if (interval) columns.push_back({"interval", "95 % interval, " + unit});
    if (averaged) columns.push_back({"average", "by average, " + unit, decimals});
    if (any(series, &ScalingPoint::tokens_per_second)) columns.push_back({"rate", "tokens/s", 0});
    columns.push_back({"speedup", "speedup", 2});
    const bool speedup_interval = std::any_of(series.points.begin(), series.points.end(),
                                              [](const auto& point) { return point.speedup_interval.known(); });
    if (speedup_interval) columns.push_back({"speedup_interval", "95 % interval"});
    columns.push_back({"ideal", "ideal", 2});
    columns.push_back({"efficiency", "efficiency, %", 1});
    columns.push_back({"other_speedup", timed ? "speedup by average" : "speedup by slowest rate", 2});
    columns.push_back({"other_efficiency", timed ? "efficiency by average, %" : "efficiency by slowest rate, %", 1});
    if (any(series, &ScalingPoint::karp_flatt)) columns.push_back({"karp_flatt", "Karp-Flatt serial, %", 2});
    Table table(columns);
    const double base = static_cast<double>(series.points[series.base].ranks);
    for (const ScalingPoint& point : series.points) {
        std::vector<Cell> cells = {point.ranks, static_cast<std::int64_t>(point.runs.size())};
        if (timed) cells.push_back(known(point.seconds_slowest, factor));
        if (interval) cells.push_back(interval_cell(point.seconds_interval, factor, decimals));
        if (averaged) cells.push_back(known(point.seconds_average, factor));
        if (any(series, &ScalingPoint::tokens_per_second)) cells.push_back(known_whole(point.tokens_per_second));
        cells.push_back(known(timed ? point.speedup_slowest : point.speedup_average));
        if (speedup_interval) cells.push_back(interval_cell(point.speedup_interval, 1, 2));
        cells.push_back(static_cast<double>(point.ranks) / base);
        cells.push_back(known(point.efficiency, 100));
        cells.push_back(known(timed ? point.speedup_average : point.speedup_slowest));
        cells.push_back(known(timed ? point.efficiency_average : point.efficiency_slowest_rate, 100));
        // A share outside of 0 to 1 comes from a base case that does not fit.
        const bool share = point.karp_flatt >= 0 && point.karp_flatt <= 1;
        if (any(series, &ScalingPoint::karp_flatt)) cells.push_back(share ? known(point.karp_flatt, 100) : Cell());
        table.add_row(std::move(cells));
    }
    return table;
}

Table factor_table(const ScalingSeries& series) {
    const bool run = series.unit == "run";
    const double factor = run ? 1 : 1e3;
    const std::string unit = run ? ", s" : ", ms";
    const bool computed = any(series, &ScalingPoint::compute_seconds),
               communicated = any(series, &ScalingPoint::communication_seconds);
    std::vector<Column> columns = {{"ranks", "ranks"}, {"balance", "load balance", 3}, {"by", "by"}};
    if (communicated) {
        columns.push_back({"communication_efficiency", "communication efficiency", 3});
        columns.push_back({"parallel_efficiency", "parallel efficiency", 3});
    }
    if (computed) columns.push_back({"computation_scaling", "computation scaling", 3});
    if (communicated) columns.push_back({"global_efficiency", "global efficiency", 3});
    if (computed) columns.push_back({"compute", "compute" + unit, 3});
    if (communicated) {
        columns.push_back({"communication", "communication" + unit, 3});
        columns.push_back({"share", "communication, %", 1});
        columns.push_back({"ratio", "communication / compute", 3});
    }
    Table table(columns);
    for (const ScalingPoint& point : series.points) {
        std::vector<Cell> cells = {point.ranks, known(point.load_balance), {}};
        if (!point.load_balance_by.empty()) cells.back() = point.load_balance_by;
        if (communicated) {
            cells.push_back(known(point.communication_efficiency));
            cells.push_back(known(point.parallel_efficiency));
        }
        if (computed) cells.push_back(known(point.computation_scaling));
        if (communicated) cells.push_back(known(point.global_efficiency));
        if (computed) cells.push_back(known(point.compute_seconds, factor));
        if (communicated) {
            cells.push_back(known(point.communication_seconds, factor));
            cells.push_back(known(point.communication_share, 100));
            cells.push_back(known(point.communication_ratio));
        }
        table.add_row(std::move(cells));
    }
    return table;
}

Table fit_table(const ScalingSeries& series) {
    Table table({{"law", "law"},
                 {"parameter", "parameter"},
                 {"value", "value"},
                 {"interval", "95 % interval"},
                 {"error", "mean error of the fit, %", 2}});
    for (const Fit& fit : series.fits) {
        if (!fit.refusal.empty()) continue;
        bool first = true;
        for (const Parameter& parameter : fit.parameters) {
            Cell interval;
            if (parameter.interval.known())
                interval = fmt::format("{:.4g} to {:.4g}", parameter.interval.low, parameter.interval.high);
            table.add_row({first ? Cell(fit.title) : Cell(std::string()), parameter.title,
                           fmt::format("{:.4g}", parameter.value), interval,
                           first ? known(fit.relative_error, 100) : Cell(std::string())});
            first = false;
        }
    }
    return table;
}

Table scaling_rows(const Scaling& scaling) {
    Table table({{"series", "series"},
                 {"kind", "kind"},
                 {"batch", "batch"},
                 {"runs", "runs"},
                 {"ranks", "ranks"},
                 {"unit", "unit"},
                 {"seconds_slowest", ""},
                 {"seconds_slowest_low", ""},
                 {"seconds_slowest_high", ""},
                 {"seconds_average", ""},
                 {"tokens_per_second", ""},
                 {"tokens_per_second_slowest", ""},
                 {"speedup_slowest", ""},
                 {"speedup_low", ""},
                 {"speedup_high", ""},
                 {"speedup_average", ""},
                 {"efficiency", ""},
                 {"efficiency_average", ""},
                 {"efficiency_slowest_rate", ""},
                 {"load_balance", ""},
                 {"load_balance_by", ""},
                 {"communication_efficiency", ""},
                 {"parallel_efficiency", ""},
                 {"computation_scaling", ""},
                 {"global_efficiency", ""},
                 {"compute_seconds", ""},
                 {"communication_seconds", ""},
                 {"communication_share", ""},
                 {"communication_ratio", ""},
                 {"karp_flatt", ""},
                 {"steps", ""},
                 {"warm_up_steps", ""},
                 {"disturbed_steps", ""},
                 {"load_balance_time", ""},
                 {"remarks", ""}});
    for (std::size_t s = 0; s < scaling.series.size(); ++s) {
        const ScalingSeries& series = scaling.series[s];
        for (const ScalingPoint& point : series.points) {
            std::string names;
            std::int64_t steps = 0, warm_up = 0, disturbed = 0;
            for (const std::size_t run : point.runs) {
                const Measurement& one = scaling.measurements[run];
                names += (names.empty() ? "" : ", ") + one.name;
                steps += static_cast<std::int64_t>(one.steps.size());
                warm_up += one.warm_up;
                disturbed += one.disturbed;
            }
            const std::int64_t batch = scaling.measurements[point.runs.front()].batch;
            table.add_row({static_cast<std::int64_t>(s + 1),
                           std::string(kind_name(series.kind)),
                           batch > 0 ? Cell(batch) : Cell(),
                           names,
                           point.ranks,
                           series.unit,
                           known(point.seconds_slowest),
                           known(point.seconds_interval.low),
                           known(point.seconds_interval.high),
                           known(point.seconds_average),
                           known(point.tokens_per_second),
                           known(point.tokens_per_second_slowest),
                           known(point.speedup_slowest),
                           known(point.speedup_interval.low),
                           known(point.speedup_interval.high),
                           known(point.speedup_average),
                           known(point.efficiency),
                           known(point.efficiency_average),
                           known(point.efficiency_slowest_rate),
                           known(point.load_balance),
                           point.load_balance_by.empty() ? Cell() : Cell(point.load_balance_by),
                           known(point.communication_efficiency),
                           known(point.parallel_efficiency),
                           known(point.computation_scaling),
                           known(point.global_efficiency),
                           known(point.compute_seconds),
                           known(point.communication_seconds),
                           known(point.communication_share),
                           known(point.communication_ratio),
                           known(point.karp_flatt),
                           steps,
                           warm_up,
                           disturbed,
                           known(point.load_balance_time),
                           fmt::format("{}", fmt::join(point.remarks, " "))});
        }
    }
    return table;
}

Json json_of(const Scaling& scaling) {
    Json all = Json::object();
    all["rows"] = Json::parse(scaling_rows(scaling).print(TableFormat::json));
    Json& list = all["series"] = Json::array();
    std::size_t row = 0;
    for (const ScalingSeries& series : scaling.series) {
        Json object = {{"title", series.title},
                       {"kind", kind_name(series.kind)},
                       {"kind_reason", series.kind_reason},
                       {"unit", series.unit},
                       {"base_ranks", series.points[series.base].ranks},
                       {"base_seconds", json_number(series.points[series.base].seconds_slowest)}};
        Json& fits = object["fits"] = Json::array();
        for (const Fit& fit : series.fits) {
            Json one = {{"law", fit.law}, {"title", fit.title}, {"formula", fit.formula}, {"source", fit.source}};
            one["refusal"] = fit.refusal.empty() ? Json(nullptr) : Json(fit.refusal);
            Json& parameters = one["parameters"] = Json::object();
            if (fit.refusal.empty())
                for (const Parameter& parameter : fit.parameters)
                    parameters[parameter.name] = {{"value", json_number(parameter.value)},
                                                  {"interval", json_interval(parameter.interval)}};
            one["unit"] = fit.unit;
            one["remarks"] = fit.remarks;
            one["mean_relative_error"] = json_number(fit.relative_error);
            Json& predictions = one["predictions"] = Json::array();
            for (const Prediction& prediction : fit.predictions)
                predictions.push_back({{"ranks", prediction.ranks},
                                       {"value", json_number(prediction.value)},
                                       {"interval", json_interval(prediction.interval)}});
            one["prediction_refusal"] = fit.prediction_refusal.empty() ? Json(nullptr) : Json(fit.prediction_refusal);
            fits.push_back(std::move(one));
        }
        object["remarks"] = series.remarks;
        for (const ScalingPoint& point : series.points) {
            all["rows"][row]["remarks"] = point.remarks;
            ++row;
        }
        list.push_back(std::move(object));
    }
    all["remarks"] = scaling.remarks;
    return all;
}

}  // namespace lockstep::analysis
