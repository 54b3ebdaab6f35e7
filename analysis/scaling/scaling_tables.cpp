#include "analysis/scaling/scaling_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/output/values.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

const char* kind_name(Kind kind) {
    return kind == Kind::strong ? "strong" : "weak";
}

bool any(const ScalingSeries& series, double ScalingPoint::*member) {
    return std::any_of(series.points.begin(), series.points.end(),
                       [&](const ScalingPoint& point) { return std::isfinite(point.*member); });
}

std::string ranks_words(std::int64_t ranks) {
    return fmt::format("{} rank{}", with_commas(ranks), plural(ranks));
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

using Fields = std::vector<Field<ScalingPoint>>;

Field<ScalingPoint> figure(const char* name, const std::string& title, int decimals, double ScalingPoint::*member,
                           double factor = 1) {
    return {{name, title, decimals}, [=](const ScalingPoint& point) { return known(point.*member, factor); }};
}

Field<ScalingPoint> optional(Field<ScalingPoint> field) {
    field.optional = true;
    return field;
}

}  // namespace

std::string series_heading(const ScalingSeries& series) {
    return fmt::format("{}{} scaling, {} ({})", series.kind == Kind::strong ? "Strong" : "Weak",
                       series.unit == "run" ? " (imported)" : "", series.title,
                       series.kind_reason == "as given" ? series.kind_reason : "inferred: " + series.kind_reason);
}

std::string base_sentence(const Scaling& scaling, const ScalingSeries& series) {
    const ScalingPoint& base = series.points[series.base];
    std::string words = fmt::format("Base case: {}", ranks_words(base.ranks));
    if (std::isfinite(base.seconds_slowest))
        words += series.unit == "run"
                     ? fmt::format(", {:.2f} s", base.seconds_slowest)
                     : fmt::format(", {:.{}f} ms per step", 1e3 * base.seconds_slowest, decimals_for(series, 1e3));
    if (std::isfinite(base.tokens_per_second))
        words += fmt::format(", {} tokens/s{}", with_commas(std::llround(base.tokens_per_second)),
                             series.unit == "run" ? "" : " at the median step");
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
                                 ranks_words(point.ranks));
            disturbed += one.disturbed;
        }
    words = "Warm-up steps left out: " + words + ".";
    if (disturbed > 0)
        words += fmt::format(
            " Steps right after a checkpoint or a validation, in which ranks still wait for it: {} left out.",
            disturbed);
    return words + " Times are medians over the other steps, each that of its slowest rank.";
}

Table time_table(const ScalingSeries& series) {
    using P = ScalingPoint;
    const bool run = series.unit == "run", timed = any(series, &P::seconds_slowest);
    const double factor = run ? 1 : 1e3, base = static_cast<double>(series.points[series.base].ranks);
    const int decimals = decimals_for(series, factor);
    const std::string unit = run ? "s" : "ms";
    return table_of(
        series.points,
        Fields{
            {{"ranks", "ranks"}, [](const P& point) { return point.ranks; }},
            {{"runs", "runs"}, [](const P& point) { return static_cast<std::int64_t>(point.runs.size()); }},
            optional(figure("slowest", (run ? "run, " : "step, ") + unit, decimals, &P::seconds_slowest, factor)),
            {{"interval", "95 % interval, " + unit},
             [=](const P& point) { return interval_cell(point.seconds_interval, factor, decimals); },
             true},
            optional(figure("average", "by average, " + unit, decimals, &P::seconds_average, factor)),
            {{"rate", run ? "tokens/s" : "tokens/s, median step", 0},
             [](const P& point) { return known_whole(point.tokens_per_second); },
             true},
            figure("speedup", "speedup", 2, timed ? &P::speedup_slowest : &P::speedup_average),
            {{"speedup_interval", "95 % interval"},
             [](const P& point) { return interval_cell(point.speedup_interval, 1, 2); },
             true},
            {{"ideal", "ideal", 2}, [=](const P& point) { return static_cast<double>(point.ranks) / base; }},
            figure("efficiency", "efficiency, %", 1, &P::efficiency, 100),
            figure("other_speedup", timed ? "speedup by average" : "speedup by slowest rate", 2,
                   timed ? &P::speedup_average : &P::speedup_slowest),
            figure("other_efficiency", timed ? "efficiency by average, %" : "efficiency by slowest rate, %", 1,
                   timed ? &P::efficiency_average : &P::efficiency_slowest_rate, 100),
            // A share outside of 0 to 1 comes from a base case that does not fit.
            {{"karp_flatt", "Karp-Flatt serial, %", 2},
             [](const P& point) {
                 return point.karp_flatt >= 0 && point.karp_flatt <= 1 ? known(point.karp_flatt, 100) : Cell();
             },
             !any(series, &P::karp_flatt)},
        });
}

Table factor_table(const ScalingSeries& series) {
    using P = ScalingPoint;
    const bool run = series.unit == "run", computed = any(series, &P::compute_seconds),
               communicated = any(series, &P::communication_seconds);
    const double factor = run ? 1 : 1e3;
    const std::string unit = run ? ", s" : ", ms";
    Fields fields = {{{"ranks", "ranks"}, [](const P& point) { return point.ranks; }},
                     figure("balance", "load balance", 3, &P::load_balance),
                     {{"by", "by"}, [](const P& point) {
                          return point.load_balance_by.empty() ? Cell() : Cell(point.load_balance_by);
                      }}};
    const auto add = [&](bool shown, Field<P> field) {
        if (shown) fields.push_back(std::move(field));
    };
    add(communicated, figure("communication_efficiency", "communication efficiency", 3, &P::communication_efficiency));
    add(communicated, figure("parallel_efficiency", "parallel efficiency", 3, &P::parallel_efficiency));
    add(computed, figure("computation_scaling", "computation scaling", 3, &P::computation_scaling));
    add(communicated, figure("global_efficiency", "global efficiency", 3, &P::global_efficiency));
    add(computed, figure("compute", "compute" + unit, 3, &P::compute_seconds, factor));
    add(communicated, figure("communication", "communication" + unit, 3, &P::communication_seconds, factor));
    add(communicated, figure("share", "communication, %", 1, &P::communication_share, 100));
    add(communicated, figure("ratio", "communication / compute", 3, &P::communication_ratio));
    return table_of(series.points, fields);
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
    using P = ScalingPoint;
    std::vector<Column> columns = columns_named(
        {"series", "kind", "batch", "runs", "ranks", "unit", "seconds_slowest", "seconds_slowest_low",
         "seconds_slowest_high", "seconds_average", "tokens_per_second", "tokens_per_second_slowest", "speedup_slowest",
         "speedup_low", "speedup_high", "speedup_average", "efficiency", "efficiency_average"});
    for (const Column& column :
         columns_named({"efficiency_slowest_rate", "load_balance", "load_balance_by", "communication_efficiency",
                        "parallel_efficiency", "computation_scaling", "global_efficiency", "compute_seconds",
                        "communication_seconds", "communication_share", "communication_ratio", "karp_flatt", "steps",
                        "warm_up_steps", "disturbed_steps", "load_balance_time", "remarks"}))
        columns.push_back(column);
    Table table(std::move(columns));
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
            std::vector<Cell> cells = {static_cast<std::int64_t>(s + 1),
                                       std::string(kind_name(series.kind)),
                                       batch > 0 ? Cell(batch) : Cell(),
                                       names,
                                       point.ranks,
                                       series.unit};
            for (const double value :
                 {point.seconds_slowest, point.seconds_interval.low, point.seconds_interval.high, point.seconds_average,
                  point.tokens_per_second, point.tokens_per_second_slowest, point.speedup_slowest,
                  point.speedup_interval.low, point.speedup_interval.high, point.speedup_average, point.efficiency,
                  point.efficiency_average, point.efficiency_slowest_rate, point.load_balance})
                cells.push_back(known(value));
            cells.push_back(point.load_balance_by.empty() ? Cell() : Cell(point.load_balance_by));
            for (double P::*member : {&P::communication_efficiency, &P::parallel_efficiency, &P::computation_scaling,
                                      &P::global_efficiency, &P::compute_seconds, &P::communication_seconds,
                                      &P::communication_share, &P::communication_ratio, &P::karp_flatt})
                cells.push_back(known(point.*member));
            for (const std::int64_t count : {steps, warm_up, disturbed}) cells.emplace_back(count);
            cells.push_back(known(point.load_balance_time));
            cells.emplace_back(fmt::format("{}", fmt::join(point.remarks, " ")));
            table.add_row(std::move(cells));
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
