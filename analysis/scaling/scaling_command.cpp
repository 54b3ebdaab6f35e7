// lockstep-analyze scaling: speedup and efficiency of runs that differ in their number of ranks, and what limits them.
#include "analysis/scaling/scaling_command.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/command.hpp"
#include "analysis/load/load.hpp"
#include "analysis/output/page.hpp"
#include "analysis/output/values.hpp"
#include "analysis/predict/prediction.hpp"
#include "analysis/scaling/scaling_tables.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {
namespace {

struct Options {
    LoadOptions load;
    ScalingOptions scaling;
    std::string format = "text", prediction;
};

// Prefixes the law's name unless the sentence has it.
std::string of_law(const Fit& fit, const std::string& sentence) {
    return sentence.find(fit.title) != std::string::npos ? sentence : fit.title + ": " + sentence;
}

void print_fits(Page& page, const ScalingSeries& series) {
    const Table fits = fit_table(series);
    if (!fits.rows().empty()) {
        page.heading("Fitted scaling laws");
        page.table(fits);
    }
    for (const Fit& fit : series.fits) {
        if (!fit.refusal.empty()) {
            page.sentence(fmt::format("Not fitted: {}", fit.refusal));
            continue;
        }
        page.sentence(fmt::format("{}: {}.", fit.title, fit.formula));
        for (const std::string& remark : fit.remarks) page.sentence(of_law(fit, remark));
        if (!fit.prediction_refusal.empty()) page.sentence(of_law(fit, fit.prediction_refusal));
        for (const Prediction& prediction : fit.predictions)
            page.sentence(fmt::format(
                "{}: at {:g} ranks {:.4g} {}{}{}.", fit.title, prediction.ranks, prediction.value, fit.unit,
                prediction.interval.known()
                    ? fmt::format(" ({:.4g} to {:.4g})", prediction.interval.low, prediction.interval.high)
                    : "",
                prediction.ranks > static_cast<double>(series.points.back().ranks) ? ", extrapolated" : ""));
    }
}

void print_series(Page& page, const Scaling& scaling, const ScalingSeries& series) {
    page.heading(series_heading(series), true);
    page.sentence(base_sentence(scaling, series));
    page.sentence(warm_up_sentence(scaling, series));
    page.heading("Time, speedup and efficiency");
    page.table(time_table(series));
    page.heading("Efficiency factors");
    page.table(factor_table(series));
    print_fits(page, series);
    std::vector<std::string> remarks = series.remarks;
    for (const ScalingPoint& point : series.points)
        for (const std::string& remark : point.remarks)
            remarks.push_back(fmt::format("{} rank{}: {}", point.ranks, plural(point.ranks), remark));
    page.remarks(remarks);
}

void print_prediction(Page& page, const PredictionComparison& comparison, const PredictionFile& prediction) {
    for (const ComparedCurve& curve : comparison.curves) {
        page.heading(fmt::format("{}: prediction of {} and measurements", curve.title, prediction.made), true);
        if (!curve.points.empty()) page.table(comparison_table(curve, prediction.unit));
        page.sentence(comparison_sentence(curve));
    }
    for (const std::string& remark : comparison.remarks) page.sentence(remark);
}

int run_scaling(const Options& options) {
    const TableFormat format = table_format(options.format);
    std::optional<PredictionFile> prediction;
    if (!options.prediction.empty()) prediction = read_prediction(options.prediction);
    // A single run is no series but can be compared with a prediction.
    std::vector<Measurement> measurements = load_measurements(options.load);
    const Scaling scaling = prediction ? scaling_or_none(std::move(measurements), options.scaling)
                                       : scaling_of(std::move(measurements), options.scaling);
    PredictionComparison comparison;
    if (prediction) comparison = compare_prediction(*prediction, scaling.measurements, options.scaling.ignored);
    std::string text;
    if (format == TableFormat::json) {
        Json json = json_of(scaling);
        if (prediction) json["prediction"] = json_of(comparison, *prediction);
        text = json_text(json);
    } else if (format == TableFormat::csv) {
        text = scaling_rows(scaling).print(format);
        if (prediction) log::warning("csv leaves out the prediction; use --format json for it");
        // Remarks have no row in CSV.
        for (const std::string& remark : scaling.remarks) log::warning("{}", remark);
        for (const ScalingSeries& series : scaling.series)
            for (const std::string& remark : series.remarks) log::warning("{}: {}", series.title, remark);
    } else {
        Page page(format);
        for (const ScalingSeries& series : scaling.series) print_series(page, scaling, series);
        if (prediction) print_prediction(page, comparison, *prediction);
        if (!scaling.remarks.empty()) page.heading("Runs left out", true);
        for (const std::string& remark : scaling.remarks) page.sentence(remark);
        text = page.text();
    }
    print(text);
    return 0;
}

}  // namespace

Scaling scaling_or_none(std::vector<Measurement> measurements, const ScalingOptions& options) {
    try {
        return scaling_of(measurements, options);
    } catch (const Error& problem) {
        if (problem.code() != ExitCode::usage || options.base_ranks > 0 || options.kind != "auto") throw;
        Scaling scaling;
        scaling.measurements = std::move(measurements);
        if (scaling.measurements.size() > 1) scaling.remarks.push_back(fmt::format("{}.", problem.what()));
        return scaling;
    }
}

void add_prediction_option(CLI::App& command, std::string& path) {
    command.add_option("--prediction", path,
                       "A prediction (a file from lockstep-analyze predict) to compare the runs with");
}

void add_scaling_options(CLI::App& command, ScalingOptions& options) {
    command
        .add_option("--kind", options.kind,
                    "strong (the same work), weak (work that grows with the ranks), or inferred from the batch")
        ->check(CLI::IsMember({"auto", "strong", "weak"}))
        ->capture_default_str();
    command
        .add_option("--ignore", options.ignored,
                    "Settings that may differ within a series, as in a run description: model.width,batch.length")
        ->delimiter(',');
    command.add_option("--base", options.base_ranks, "Number of ranks of the base case [the smallest]")
        ->check(above_zero());
    command
        .add_option("--laws", options.laws,
                    "Laws to fit: amdahl, gustafson, universal_scalability, extra_p [Amdahl's for strong scaling, "
                    "Gustafson's for weak, the universal scalability law]")
        ->delimiter(',')
        ->check(CLI::IsMember({"amdahl", "gustafson", "universal_scalability", "extra_p"}));
    command.add_option("--predict", options.predict_at, "Numbers of ranks to predict with the fitted laws: 16,32")
        ->delimiter(',')
        ->check(above_zero());
}

void add_scaling(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "scaling", "Compute speedup, efficiency and what limits them, for runs on different numbers of ranks");
    add_load_options(*command, options->load);
    add_scaling_options(*command, options->scaling);
    add_prediction_option(*command, options->prediction);
    add_format_option(*command, options->format);
    command->footer(
        "Runs that differ only in the number of ranks form a series. A step takes as long as its slowest rank;\n"
        "the figures that averaging over ranks would give are shown alongside. docs/analysis.md has every equation.\n"
        "  lockstep-analyze scaling runs/g1 runs/g2 runs/g4 runs/g8");
    command->callback([options, &action] { action = [options] { return run_scaling(*options); }; });
}

}  // namespace lockstep::analysis
