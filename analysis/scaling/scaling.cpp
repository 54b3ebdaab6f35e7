#include "analysis/scaling/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/scaling/scaling_laws.hpp"
#include "analysis/scaling/scaling_remarks.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

// The values of all ranks, or none: a part of the ranks does not represent all.
std::vector<double> of_ranks(const Measurement& run, double RankMeasurement::*member) {
    std::vector<double> values;
    for (const RankMeasurement& rank : run.rank)
        if (rank.present && std::isfinite(rank.*member) && rank.*member > 0) values.push_back(rank.*member);
    if (values.size() != run.rank.size() || run.whole) values.clear();
    return values;
}

// Unknown unless both are known and the divisor is not 0.
double ratio(double part, double whole) {
    return std::isfinite(part) && std::isfinite(whole) && whole != 0 ? part / whole : unknown;
}

bool only_rates(const Measurement& run) {
    return !std::isfinite(run.step_seconds());
}

// What one run says by itself.
ScalingPoint point_of(const Measurement& run, std::size_t index) {
    ScalingPoint point;
    point.runs = {index};
    point.ranks = run.ranks;
    if (!run.imported) {
        point.threads = 0;
        for (const RankMeasurement& rank : run.rank)
            point.threads += static_cast<double>(std::max<std::int64_t>(rank.threads, 1));
    }
    point.seconds_slowest = run.step_seconds();
    point.seconds_average = run.average_step_seconds();
    point.seconds_interval = run.step_interval();
    point.compute_seconds = run.compute_seconds();
    point.communication_seconds = run.communication_seconds();
    point.tokens_per_second = run.usual_rate();
    const std::vector<double> seconds = of_ranks(run, &RankMeasurement::seconds),
                              compute = of_ranks(run, &RankMeasurement::compute),
                              rates = of_ranks(run, &RankMeasurement::tokens_per_second);
    if (!rates.empty() && only_rates(run))
        point.tokens_per_second_slowest = static_cast<double>(run.ranks) * smallest_of(rates);
    if (run.imported && !seconds.empty()) point.load_balance_time = mean(seconds) / largest_of(seconds);
    if (!compute.empty() && std::isfinite(point.compute_seconds)) {
        point.load_balance = mean(compute) / largest_of(compute);
        point.load_balance_by = "compute";
    } else if (std::isfinite(point.load_balance_time)) {
        point.load_balance = point.load_balance_time;
        point.load_balance_by = "time";
    } else if (!rates.empty() && only_rates(run)) {
        point.load_balance = smallest_of(rates) / harmonic_mean(rates);
        point.load_balance_by = "rate";
    }
    // Imported: the whole is the slowest rank's time; traced steps: the sum of compute and communication.
    if (std::isfinite(point.communication_seconds) && std::isfinite(point.compute_seconds)) {
        const double whole = run.imported ? point.seconds_slowest : point.compute_seconds + point.communication_seconds;
        point.parallel_efficiency = ratio(point.compute_seconds, whole);
        if (point.load_balance_by == "compute")
            point.communication_efficiency = ratio(point.parallel_efficiency, point.load_balance);
        const double own = run.imported && !seconds.empty() ? mean(seconds) : whole;
        point.communication_share = ratio(point.communication_seconds, own);
        point.communication_ratio = ratio(point.communication_seconds, point.compute_seconds);
    }
    return point;
}

// The median over runs on the same number of ranks.
ScalingPoint merge(const std::vector<ScalingPoint>& points) {
    if (points.size() == 1) return points.front();
    ScalingPoint merged = points.front();
    merged.runs.clear();
    for (const ScalingPoint& point : points) merged.runs.push_back(point.runs.front());
    for (double ScalingPoint::*member :
         {&ScalingPoint::seconds_slowest, &ScalingPoint::seconds_average, &ScalingPoint::tokens_per_second,
          &ScalingPoint::tokens_per_second_slowest, &ScalingPoint::load_balance, &ScalingPoint::load_balance_time,
          &ScalingPoint::communication_efficiency, &ScalingPoint::parallel_efficiency, &ScalingPoint::compute_seconds,
          &ScalingPoint::communication_seconds, &ScalingPoint::communication_share,
          &ScalingPoint::communication_ratio}) {
        std::vector<double> values;
        for (const ScalingPoint& point : points) values.push_back(point.*member);
        merged.*member = median(values);
    }
    // Runs differ more than the steps within one: the interval is that of their medians.
    std::vector<double> medians;
    for (const ScalingPoint& point : points) medians.push_back(point.seconds_slowest);
    merged.seconds_interval = median_interval(medians);
    if (smallest_of(medians) > 0)
        merged.remarks.push_back(fmt::format("The {} runs take {} to {}.", points.size(),
                                             seconds_words(smallest_of(medians)), seconds_words(largest_of(medians))));
    return merged;
}

void compare_with_base(ScalingPoint& point, const ScalingPoint& base, Kind kind, double work) {
    const double ranks = static_cast<double>(point.ranks) / static_cast<double>(base.ranks);
    const bool timed = std::isfinite(point.seconds_slowest) && std::isfinite(base.seconds_slowest);
    if (timed) {
        point.speedup_slowest = work * ratio(base.seconds_slowest, point.seconds_slowest);
        // A table's time of a whole run stands for both readings.
        const auto average = [](const ScalingPoint& one) {
            return std::isfinite(one.seconds_average) ? one.seconds_average : one.seconds_slowest;
        };
        if (std::isfinite(point.seconds_average)) point.speedup_average = work * ratio(average(base), average(point));
        point.efficiency = point.speedup_slowest / ranks;
        point.efficiency_average = point.speedup_average / ranks;
    } else {
        const double slowest_of_base =
            std::isfinite(base.tokens_per_second_slowest) ? base.tokens_per_second_slowest : base.tokens_per_second;
        point.speedup_average = ratio(point.tokens_per_second, base.tokens_per_second);
        point.speedup_slowest = ratio(point.tokens_per_second_slowest, slowest_of_base);
        point.efficiency = point.efficiency_average = point.speedup_average / ranks;
        point.efficiency_slowest_rate = point.speedup_slowest / ranks;
    }
    // All compute of all ranks, for the same work.
    point.computation_scaling = work * ratio(base.compute_seconds * static_cast<double>(base.ranks),
                                             point.compute_seconds * static_cast<double>(point.ranks));
    point.global_efficiency = point.parallel_efficiency * point.computation_scaling;
    const double speedup = timed ? point.speedup_slowest : point.speedup_average;
    if (kind == Kind::strong && ranks > 1 && speedup > 0)
        point.karp_flatt = (1 / speedup - 1 / ranks) / (1 - 1 / ranks);
}

// Of work · T(base) ÷ T, by resampling the steps of both.
Interval speedup_interval(const Measurement& base, const Measurement& run, double work) {
    constexpr std::uint64_t seed = 1;
    return bootstrap_interval(
        {base.slowest_seconds(), run.slowest_seconds()},
        [work](const auto& groups) { return work * median(groups[0]) / median(groups[1]); }, seed, Resample::blocks);
}

// The runs of one number of ranks that had the same threads and the same micro-batch as most of them.
std::vector<std::size_t> alike(const std::vector<Measurement>& all, const std::vector<std::size_t>& runs,
                               std::vector<std::string>& remarks) {
    const auto setup = [&](std::size_t run) {
        std::string words;
        for (const char* key : {"threads", "micro_batch", "gpu"}) {
            const std::string value = all[run].setting(key);
            words += fmt::format("{}{} {}", words.empty() ? "" : ", ", key, value.empty() ? "-" : value);
        }
        return words;
    };
    std::map<std::string, std::vector<std::size_t>> setups;
    for (const std::size_t run : runs) setups[setup(run)].push_back(run);
    const std::string* most = nullptr;
    for (const auto& [words, members] : setups)
        if (!most || members.size() > setups[*most].size() ||
            (members.size() == setups[*most].size() && members.front() < setups[*most].front()))
            most = &words;
    for (const auto& [words, members] : setups)
        if (words != *most)
            for (const std::size_t run : members)
                remarks.push_back(fmt::format("{} on {} rank{} is left out: it does not repeat {} ({}; {}).",
                                              all[run].name, all[run].ranks, plural(all[run].ranks),
                                              all[setups[*most].front()].name, words, *most));
    return setups[*most];
}

ScalingSeries series_of(const Group& group, const Scaling& scaling, const ScalingOptions& options) {
    const auto& all = scaling.measurements;
    ScalingSeries series;
    series.title = group.title;
    series.kind = group.kind;
    series.kind_reason = group.kind_reason;
    series.remarks = group.remarks;
    series.unit = all[group.runs.front()].imported ? "run" : "step";
    std::map<std::int64_t, std::vector<std::size_t>> runs_of;
    for (const std::size_t run : group.runs) runs_of[all[run].ranks].push_back(run);
    std::size_t timed = 0;
    for (const auto& [ranks, runs] : runs_of) {
        std::vector<ScalingPoint> points;
        for (const std::size_t run : alike(all, runs, series.remarks)) points.push_back(point_of(all[run], run));
        series.points.push_back(merge(points));
        timed += std::isfinite(series.points.back().seconds_slowest) ? 1 : 0;
    }
    // A series has either times or rates.
    series.timed = 2 * timed >= series.points.size();
    for (auto point = series.points.begin(); point != series.points.end();) {
        if (std::isfinite(series.timed ? point->seconds_slowest : point->tokens_per_second)) {
            ++point;
            continue;
        }
        series.remarks.push_back(fmt::format("{} is left out: it has {}.", all[point->runs.front()].name,
                                             series.timed ? "no time" : "no rate"));
        point = series.points.erase(point);
    }
    if (options.base_ranks > 0) {
        const auto found = std::find_if(series.points.begin(), series.points.end(),
                                        [&](const auto& point) { return point.ranks == options.base_ranks; });
        if (found == series.points.end())
            throw usage_error("no run of the series with {} has {} rank{}; give --base one of its numbers of ranks",
                              series.title, options.base_ranks, plural(options.base_ranks));
        series.base = static_cast<std::size_t>(found - series.points.begin());
    }
    const ScalingPoint base = series.points[series.base];
    bool by_batch = false;
    for (ScalingPoint& point : series.points) {
        const Measurement &run = all[point.runs.front()], &first = all[base.runs.front()];
        const double work = work_ratio(run, first);
        by_batch = by_batch || (run.imported && work != 1 && !(ratio(run.step_tokens(), first.step_tokens()) > 0));
        compare_with_base(point, base, series.kind, work);
        if (!run.imported && point.ranks != base.ranks && point.runs.size() == 1 && base.runs.size() == 1)
            point.speedup_interval = speedup_interval(first, run, work);
        remark_on(point, base, scaling, series, work);
    }
    if (by_batch)
        series.remarks.emplace_back(
            "The table gives no tokens, so work is assumed to be proportional to the batch. If each run did the same "
            "work, such as an epoch of the same data, pass --ignore batch.global.");
    if (base.ranks > 1)
        series.remarks.push_back(fmt::format(
            "The base case already has {} ranks: their own losses do not show in any speedup or efficiency.",
            base.ranks));
    fit_laws(series, all, options);
    return series;
}

}  // namespace

Scaling scaling_of(std::vector<Measurement> measurements, const ScalingOptions& options) {
    Scaling scaling;
    scaling.measurements = std::move(measurements);
    const auto& all = scaling.measurements;
    std::vector<std::size_t> empty;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (!std::isfinite(all[i].step_seconds()) && !std::isfinite(all[i].tokens_per_second())) empty.push_back(i);
    for (auto i = empty.rbegin(); i != empty.rend(); ++i) {
        scaling.remarks.push_back(fmt::format("{} has neither a measured step nor a rate{}: it is left out.",
                                              all[*i].name, all[*i].warm_up > 0 ? " (all its steps are warm-up)" : ""));
        scaling.measurements.erase(scaling.measurements.begin() + static_cast<std::ptrdiff_t>(*i));
    }
    std::set<std::string> keys;
    for (const Measurement& one : all)
        for (const auto& [key, value] : one.settings) keys.insert(key);
    for (const std::string& key : options.ignored)
        if (keys.count(key) == 0) {
            const std::string near = nearest_name(key, {keys.begin(), keys.end()});
            throw usage_error("--ignore {}: no run has this setting{}", key,
                              near.empty() ? std::string() : fmt::format(" (did you mean {}?)", near));
        }
    if (all.empty()) throw usage_error("{}", scaling.remarks.empty() ? "no run was given" : scaling.remarks.front());
    const Grouping groups = group_runs(all, options.kind, options.ignored);
    scaling.remarks.insert(scaling.remarks.end(), groups.remarks.begin(), groups.remarks.end());
    for (const Group& group : groups.groups) scaling.series.push_back(series_of(group, scaling, options));
    return scaling;
}

}  // namespace lockstep::analysis
