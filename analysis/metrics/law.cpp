#include "analysis/metrics/law.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::uint64_t seed = 1;  // the same data give the same intervals

bool is_positive(double value) {
    return std::isfinite(value) && value > 0;
}

double mean_relative_error(const Law& law, const FitData& data, const std::vector<double>& parameters) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < data.ranks.size(); ++i)
        errors.push_back(std::abs(law.evaluate(parameters, data.ranks[i]) / data.values[i] - 1));
    return mean(errors);
}

// Which numbers of ranks can be predicted; the fit says why not the others.
std::vector<double> predictable(Fit& fit, const Law& law, const FitData& data, const std::vector<double>& wanted) {
    std::vector<double> kept;
    if (wanted.empty()) return kept;
    const std::size_t different = data.different_ranks();
    if (different < law.fewest_to_predict) {
        fit.prediction_refusal = fmt::format("{} needs {} different numbers of ranks to predict; there are {}.",
                                             law.name, law.fewest_to_predict, different);
        return kept;
    }
    const double smallest = data.ranks.front(), largest = data.ranks.back();
    std::vector<double> beyond;
    for (const double ranks : wanted) {
        if (ranks >= 1 && ranks <= farthest_prediction * largest && ranks >= smallest / farthest_prediction)
            kept.push_back(ranks);
        else
            beyond.push_back(ranks);
    }
    if (!beyond.empty())
        fit.prediction_refusal = fmt::format(
            "Not predicted at {} rank{}: the runs cover {} to {}, and a fit is extrapolated by at most a factor of {}.",
            fmt::join(beyond, ", "), plural(beyond.size() == 1 ? beyond.front() : 2.0), smallest, largest,
            farthest_prediction);
    return kept;
}

// Intervals of parameters and predictions together, from the same resamples.
void add_intervals(Fit& fit, const Law& law, const std::vector<FitPoint>& points, const FitData& data,
                   const std::vector<double>& parameters) {
    Groups samples;
    std::size_t all_samples = 0;
    std::vector<double>
        measured;  // the median of the samples, which need not be the value: that may be of several runs
    for (const FitPoint& point : points) {
        samples.push_back(point.samples);
        measured.push_back(median(point.samples));
        all_samples += point.samples.size();
    }
    const std::size_t count = parameters.size() + fit.predictions.size();
    const auto statistics = [&](const Groups& drawn) {
        FitData resampled = data;
        for (std::size_t i = 0; i < drawn.size(); ++i) resampled.values[i] *= median(drawn[i]) / measured[i];
        std::vector<double> results(count, unknown);
        if (!std::all_of(resampled.values.begin(), resampled.values.end(), is_positive)) return results;
        const std::vector<double> solved = law.solve(resampled);
        if (solved.empty()) return results;
        const std::vector<double> own =
            law.resampled_parameters ? law.resampled_parameters(resampled, parameters, solved) : solved;
        std::copy(own.begin(), own.end(), results.begin());
        for (std::size_t i = 0; i < fit.predictions.size(); ++i)
            results[parameters.size() + i] = law.evaluate(solved, fit.predictions[i].ranks);
        return results;
    };
    const std::vector<Interval> intervals =
        bootstrap_intervals(samples, count, statistics, seed, Resample::blocks, enough_resamples(all_samples));
    for (std::size_t i = 0; i < parameters.size(); ++i) fit.parameters[i].interval = intervals[i];
    for (std::size_t i = 0; i < fit.predictions.size(); ++i)
        fit.predictions[i].interval = intervals[parameters.size() + i];
}

}  // namespace

std::size_t FitData::different_ranks() const {
    std::vector<double> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

std::vector<FitPoint> usable_points(const std::vector<FitPoint>& points) {
    std::vector<FitPoint> usable;
    for (const FitPoint& point : points)
        if (is_positive(point.ranks) && is_positive(point.value)) usable.push_back(point);
    std::stable_sort(usable.begin(), usable.end(),
                     [](const FitPoint& a, const FitPoint& b) { return a.ranks < b.ranks; });
    return usable;
}

FitData fit_data(const std::vector<FitPoint>& points) {
    FitData data;
    for (const FitPoint& point : points) {
        data.ranks.push_back(point.ranks);
        data.values.push_back(point.value);
    }
    return data;
}

void fit_law(Fit& fit, const Law& law, const std::vector<FitPoint>& points, const std::vector<double>& predict_at) {
    const std::vector<FitPoint> usable = usable_points(points);
    const FitData data = fit_data(usable);
    const std::size_t different = data.different_ranks();
    if (different < law.fewest) {
        fit.refusal =
            fmt::format("{} needs {} different numbers of ranks; there are {}", law.name, law.fewest, different);
        if (usable.size() < points.size())
            fit.refusal +=
                fmt::format(" ({} of {} points have no value)", points.size() - usable.size(), points.size());
        fit.refusal += ".";
        return;
    }
    const std::vector<double> solved = law.solve(data);
    if (solved.empty()) {
        fit.refusal = fmt::format("{} cannot be fitted to these points: no parameters within its bounds describe them.",
                                  law.name);
        return;
    }
    LOCKSTEP_ASSERT(solved.size() == law.parameters.size());
    fit.parameters = law.parameters;
    for (std::size_t i = 0; i < solved.size(); ++i) fit.parameters[i].value = solved[i];
    fit.relative_error = mean_relative_error(law, data, solved);
    fit.at = [evaluate = law.evaluate, solved](double ranks) { return evaluate(solved, ranks); };
    for (const double ranks : predictable(fit, law, data, predict_at))
        fit.predictions.push_back({ranks, law.evaluate(solved, ranks), {}});
    add_intervals(fit, law, usable, data, solved);
}

}  // namespace lockstep::analysis
