#include "analysis/scaling/scaling_laws.hpp"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::analysis {
namespace {

// What a law is fitted to: seconds, or rates (work a second: of the base's steps, or tokens).
std::vector<FitPoint> fit_points(const ScalingSeries& series, const std::vector<Measurement>& all, bool rates) {
    std::vector<FitPoint> points;
    const ScalingPoint& base = series.points[series.base];
    for (const ScalingPoint& point : series.points) {
        FitPoint fit;
        fit.ranks = static_cast<double>(point.ranks);
        if (series.timed) {
            if (!std::isfinite(point.seconds_slowest)) continue;
            const double work = work_ratio(all[point.runs.front()], all[base.runs.front()]);
            const auto converted = [&](double seconds) { return rates ? work / seconds : seconds / work; };
            fit.value = converted(point.seconds_slowest);
            for (const std::size_t run : point.runs)
                for (const StepSample& step : all[run].steps)
                    if (std::isfinite(step.slowest)) fit.samples.push_back(converted(step.slowest));
        } else {
            fit.value = rates ? point.tokens_per_second : 1 / point.tokens_per_second;
        }
        points.push_back(std::move(fit));
    }
    return points;
}

}  // namespace

double work_ratio(const Measurement& run, const Measurement& base) {
    const double by_tokens = run.step_tokens() / base.step_tokens();
    if (std::isfinite(by_tokens) && by_tokens > 0) return by_tokens;
    if (run.batch == 0 || base.batch == 0) return 1;
    return static_cast<double>(run.batch) / static_cast<double>(base.batch);
}

void fit_laws(ScalingSeries& series, const std::vector<Measurement>& all, const ScalingOptions& options) {
    std::vector<std::string> laws = options.laws;
    const bool strong = series.kind == Kind::strong;
    if (laws.empty()) laws = {strong ? "amdahl" : "gustafson", "universal_scalability"};
    const std::string seconds_unit = series.timed ? fmt::format("s per {}", series.unit) : "s per token",
                      rate_unit =
                          series.timed ? fmt::format("times the base's {} per second", series.unit) : "tokens/s";
    for (const std::string& law : laws) {
        Fit fit;
        if (law == "amdahl" && strong) {
            fit = fit_amdahl(fit_points(series, all, false), options.predict_at);
            fit.unit = seconds_unit;
        } else if (law == "gustafson" && !strong) {
            fit = fit_gustafson(fit_points(series, all, true), options.predict_at);
            fit.unit = "times the work per second of the fewest ranks";
        } else if (law == "universal_scalability") {
            fit = fit_universal_scalability(fit_points(series, all, true), options.predict_at);
            fit.unit = rate_unit;
        } else if (law == "extra_p") {
            fit = fit_extra_p(fit_points(series, all, false), options.predict_at);
            fit.unit = seconds_unit;
        } else {
            series.remarks.push_back(law == "amdahl"
                                         ? "Amdahl's law applies to strong scaling only: not fitted to this series."
                                         : "Gustafson's law applies to weak scaling only: not fitted to this series.");
            continue;
        }
        if (!series.timed)
            for (Parameter& parameter : fit.parameters)
                if (parameter.title.size() > 3 && parameter.title.substr(parameter.title.size() - 3) == ", s")
                    parameter.title += " per token";
        if (fit.refusal.empty() && fit.relative_error > does_not_fit) {
            fit.remarks.push_back(fmt::format(
                "The law does not describe these points: its mean error is {:.0f} %. Ignore its parameters.",
                100 * fit.relative_error));
            if (!fit.predictions.empty()) fit.prediction_refusal = "Not predicted: the law does not fit.";
            fit.predictions.clear();
        }
        series.fits.push_back(std::move(fit));
    }
}

}  // namespace lockstep::analysis
