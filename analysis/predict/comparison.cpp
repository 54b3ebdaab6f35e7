// A prediction compared with later measurements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/load/series.hpp"
#include "analysis/predict/observations.hpp"
#include "analysis/predict/prediction.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr double same = 1e-6;  // batches and numbers of ranks that count as equal

// Settings in which a run is another program than the predicted one; in words, "" where there is none.
std::string other_program(const PredictionFile& prediction, const Measurement& run,
                          const std::vector<std::string>& ignored) {
    if (run.imported != (prediction.unit == "run"))
        return run.imported ? "it is imported, but the prediction is for traced steps"
                            : "it is traced, but the prediction is for imported runs";
    std::vector<std::string> words;
    Settings keys = run.settings;
    keys.insert(prediction.settings.begin(), prediction.settings.end());
    for (const auto& [key, ignored_value] : keys) {
        if (tells_no_runs_apart(key) || is_only_marked(key) || key == "batch.global") continue;
        if (std::find(ignored.begin(), ignored.end(), key) != ignored.end()) continue;
        const auto predicted = prediction.settings.find(key);
        const std::string then = predicted == prediction.settings.end() ? "" : predicted->second,
                          now = run.setting(key);
        // A key that only one version of the program has does not describe the work.
        if (then != now && !then.empty() && !now.empty())
            words.push_back(fmt::format("{} is {}, was {}", key, now, then));
    }
    return fmt::format("{}", fmt::join(words, ", "));
}

// At a number of ranks between two points straight on logarithmic axes; false where there are none around it.
bool predicted_at(const PredictedCurve& curve, double ranks, Range& seconds) {
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
        const auto& point = curve.points[i];
        if (std::abs(point.ranks / ranks - 1) < same) {
            seconds = point.seconds;
            return true;
        }
        if (i == 0 || point.ranks < ranks || curve.points[i - 1].ranks > ranks) continue;
        const auto& before = curve.points[i - 1];
        const double place = std::log(ranks / before.ranks) / std::log(point.ranks / before.ranks);
        const auto between = [&](double one, double other) { return one * std::pow(other / one, place); };
        seconds = {between(before.seconds.low, point.seconds.low), between(before.seconds.median, point.seconds.median),
                   between(before.seconds.high, point.seconds.high)};
        return true;
    }
    return false;
}

bool was_used(const PredictionFile& prediction, const Measurement& run) {
    return std::any_of(prediction.runs.begin(), prediction.runs.end(), [&](const PredictionRun& one) {
        return one.ranks == static_cast<double>(run.ranks) && std::abs(one.seconds / run.step_seconds() - 1) < same &&
               (!(std::abs(one.started - run.started) > 1));
    });
}

double share_of(const std::vector<ComparedPoint>& points, bool only_new, double* largest, std::size_t* inside,
                std::size_t* count) {
    double sum = 0;
    *largest = 0;
    *inside = *count = 0;
    for (const ComparedPoint& point : points) {
        if (only_new && point.used) continue;
        ++*count;
        sum += std::abs(point.error);
        *largest = std::max(*largest, std::abs(point.error));
        *inside += point.inside ? 1 : 0;
    }
    return *count > 0 ? sum / static_cast<double>(*count) : 0;
}

}  // namespace

std::string curve_title(const PredictedCurve& curve, double model_ranks) {
    if (curve.request.kind == CurveKind::strong)
        return curve.request.batch > 1 ? fmt::format("Strong scaling, batch {:g}", curve.request.batch)
                                       : "Strong scaling, the same work";
    return fmt::format("Weak scaling, {:.9g} sequences per {}", curve.request.batch,
                       model_ranks > 1 ? "replica" : "rank");
}

PredictionComparison compare_prediction(const PredictionFile& prediction, const std::vector<Measurement>& measured,
                                        const std::vector<std::string>& ignored) {
    PredictionComparison result;
    std::vector<const Measurement*> same_program;
    for (const Measurement& run : measured) {
        const std::string why = other_program(prediction, run, ignored);
        if (why.empty())
            same_program.push_back(&run);
        else
            result.remarks.push_back(fmt::format("{} is not compared with the prediction: {}.", run.name, why));
    }
    std::vector<bool> compared(same_program.size(), false);
    for (std::size_t c = 0; c < prediction.scaling.curves.size(); ++c) {
        const PredictedCurve& curve = prediction.scaling.curves[c];
        ComparedCurve one;
        one.curve = c;
        one.title = curve_title(curve, prediction.model_ranks);
        std::map<std::int64_t, std::vector<std::size_t>> runs_of;
        for (std::size_t i = 0; i < same_program.size(); ++i) {
            const Measurement& run = *same_program[i];
            const double batch = run.batch > 0 ? static_cast<double>(run.batch) : 1;
            const double own = curve.request.kind == CurveKind::strong
                                   ? batch
                                   : batch * prediction.model_ranks / static_cast<double>(run.ranks);
            if (!(run.step_seconds() > 0) || std::abs(own / curve.request.batch - 1) > same) continue;
            runs_of[run.ranks].push_back(i);
        }
        for (const auto& [ranks, runs] : runs_of) {
            ComparedPoint point;
            point.ranks = static_cast<double>(ranks);
            if (!predicted_at(curve, point.ranks, point.predicted)) {
                result.remarks.push_back(fmt::format(
                    "{} rank{} outside the predicted range of {}; add a point with lockstep-analyze predict "
                    "--ranks {}.",
                    ranks, ranks == 1 ? " is" : "s are", one.title, ranks));
                for (const std::size_t run : runs) compared[run] = true;
                continue;
            }
            std::vector<double> seconds;
            for (const std::size_t i : runs) {
                const Measurement& run = *same_program[i];
                compared[i] = true;
                point.runs.push_back(run.name);
                point.batch = static_cast<double>(run.batch);
                point.used = point.used || was_used(prediction, run);
                seconds.push_back(run.step_seconds());
            }
            if (runs.size() == 1) point.interval = same_program[runs.front()]->step_interval();
            point.measured = median(seconds);
            point.error = point.predicted.median / point.measured - 1;
            point.inside = point.measured >= point.predicted.low && point.measured <= point.predicted.high;
            one.points.push_back(std::move(point));
        }
        result.curves.push_back(std::move(one));
    }
    for (std::size_t i = 0; i < same_program.size(); ++i)
        if (!compared[i])
            result.remarks.push_back(fmt::format(
                "{} is not compared with the prediction: with {} sequences per step on {} rank{} it lies on none of "
                "its curves.",
                same_program[i]->name, same_program[i]->batch, same_program[i]->ranks, plural(same_program[i]->ranks)));
    return result;
}

std::string comparison_sentence(const ComparedCurve& curve) {
    double largest = 0;
    std::size_t inside = 0, count = 0;
    if (curve.points.empty()) return "None of these runs lies on this curve.";
    const auto words = [&](bool only_new) {
        const double average = share_of(curve.points, only_new, &largest, &inside, &count);
        return fmt::format("{} of {} measured time{} in the {:g} % interval, mean error {:.1f} %, largest {:.1f} %",
                           inside, count, count == 1 ? " lies" : "s lie", 100 * prediction_level, 100 * average,
                           100 * largest);
    };
    std::string sentence = words(false) + ".";
    const bool any_used =
        std::any_of(curve.points.begin(), curve.points.end(), [](const auto& point) { return point.used; });
    const bool any_new =
        std::any_of(curve.points.begin(), curve.points.end(), [](const auto& point) { return !point.used; });
    if (any_used && any_new) sentence += " Of those not used for the prediction: " + words(true) + ".";
    if (!any_new)
        sentence += " The prediction used all of them, so this shows how well it fits, not how well it predicts.";
    return sentence;
}

Json json_of(const PredictionComparison& comparison, const PredictionFile& prediction) {
    Json json = {{"made", prediction.made}, {"level", prediction_level}};
    Json& rows = json["rows"] = Json::array();
    for (const ComparedCurve& curve : comparison.curves)
        for (const ComparedPoint& point : curve.points)
            rows.push_back(
                {{"kind", prediction.scaling.curves[curve.curve].request.kind == CurveKind::strong ? "strong" : "weak"},
                 {"runs", point.runs},
                 {"ranks", point.ranks},
                 {"batch", point.batch},
                 {"measured_seconds", point.measured},
                 {"predicted_seconds", point.predicted.median},
                 {"predicted_low", point.predicted.low},
                 {"predicted_high", point.predicted.high},
                 {"error", point.error},
                 {"inside", point.inside},
                 {"used", point.used}});
    json["remarks"] = comparison.remarks;
    return json;
}

}  // namespace lockstep::analysis
