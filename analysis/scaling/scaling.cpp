#include "analysis/scaling/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "cluster/cpu_set.hpp"

namespace lockstep::analysis {
namespace {

// Ranks whose own times differ by no more wait for each other within them: then their times say nothing of balance.
constexpr double same_time_share = 0.01;
constexpr double superlinear = 1.005;     // an efficiency above it is remarked upon
constexpr double out_of_balance = 0.9;    // and a load balance below it
constexpr double same_work_share = 0.98;  // a rank with less than this of an equal share of the base's time

std::vector<double> of_ranks(const Measurement& run, double RankMeasurement::*member) {
    std::vector<double> values;
    for (const RankMeasurement& rank : run.rank)
        if (rank.present && std::isfinite(rank.*member) && rank.*member > 0) values.push_back(rank.*member);
    return values;
}

double largest(const std::vector<double>& values) {
    return values.empty() ? unknown : *std::max_element(values.begin(), values.end());
}
double smallest(const std::vector<double>& values) {
    return values.empty() ? unknown : *std::min_element(values.begin(), values.end());
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
    point.seconds_slowest = run.step_seconds();
    point.seconds_average = run.whole ? unknown : run.average_step_seconds();
    point.seconds_interval = run.step_interval();
    point.tokens_per_second = run.tokens_per_second();
    point.compute_seconds = run.compute_seconds();
    point.communication_seconds = run.communication_seconds();
    const std::vector<double> seconds = of_ranks(run, &RankMeasurement::seconds),
                              compute = of_ranks(run, &RankMeasurement::compute),
                              rates = of_ranks(run, &RankMeasurement::tokens_per_second);
    if (rates.size() == run.rank.size() && only_rates(run))
        point.tokens_per_second_slowest = static_cast<double>(run.ranks) * smallest(rates);
    if (!run.whole && run.ranks > 1) {
        const bool differ = !seconds.empty() && smallest(seconds) < (1 - same_time_share) * largest(seconds);
        if (run.imported && differ) {
            point.load_balance = mean(seconds) / largest(seconds);
            point.load_balance_by = "time";
        } else if (!compute.empty()) {
            point.load_balance = mean(compute) / largest(compute);
            point.load_balance_by = "compute";
        } else if (!seconds.empty() && run.imported) {
            point.load_balance = mean(seconds) / largest(seconds);
            point.load_balance_by = "time";
        } else if (!rates.empty() && only_rates(run)) {
            point.load_balance = smallest(rates) / harmonic_mean(rates);
            point.load_balance_by = "rate";
        }
    } else if (run.ranks == 1) {
        point.load_balance = 1;
        point.load_balance_by = compute.empty() ? "time" : "compute";
    }
    // Parts and whole of the same steps: on a GPU those whose phases were timed.
    if (std::isfinite(point.communication_seconds) && !compute.empty()) {
        const double whole = run.imported ? largest(seconds) : point.compute_seconds + point.communication_seconds;
        point.parallel_efficiency = ratio(mean(compute), whole);
        point.communication_efficiency = ratio(point.parallel_efficiency, point.load_balance);
        const double own = run.imported ? mean(seconds) : whole;
        point.communication_share = ratio(point.communication_seconds, own);
        point.communication_ratio = ratio(point.communication_seconds, point.compute_seconds);
    }
    return point;
}

// The median over the runs of one number of ranks.
ScalingPoint merge(const std::vector<ScalingPoint>& points) {
    if (points.size() == 1) return points.front();
    ScalingPoint merged = points.front();
    merged.runs.clear();
    for (const ScalingPoint& point : points) merged.runs.push_back(point.runs.front());
    for (double ScalingPoint::*member :
         {&ScalingPoint::seconds_slowest, &ScalingPoint::seconds_average, &ScalingPoint::tokens_per_second,
          &ScalingPoint::tokens_per_second_slowest, &ScalingPoint::load_balance,
          &ScalingPoint::communication_efficiency, &ScalingPoint::parallel_efficiency, &ScalingPoint::compute_seconds,
          &ScalingPoint::communication_seconds, &ScalingPoint::communication_share,
          &ScalingPoint::communication_ratio}) {
        std::vector<double> values;
        for (const ScalingPoint& point : points) values.push_back(point.*member);
        merged.*member = median(values);
    }
    // Runs differ by more than the steps within one: the whole span that they say.
    std::vector<double> low, high;
    for (const ScalingPoint& point : points) {
        low.push_back(point.seconds_interval.known() ? point.seconds_interval.low : point.seconds_slowest);
        high.push_back(point.seconds_interval.known() ? point.seconds_interval.high : point.seconds_slowest);
    }
    merged.seconds_interval = {smallest(low), largest(high)};
    return merged;
}

// How much more work a step of `run` does than one of `base`; 1 where batches are not known.
double work_ratio(const Measurement& run, const Measurement& base) {
    if (run.batch == 0 || base.batch == 0) return 1;
    return static_cast<double>(run.batch) / static_cast<double>(base.batch);
}

void compare_with_base(ScalingPoint& point, const ScalingPoint& base, Kind kind, double work) {
    const double ranks = static_cast<double>(point.ranks) / static_cast<double>(base.ranks);
    const bool timed = std::isfinite(point.seconds_slowest) && std::isfinite(base.seconds_slowest);
    if (timed) {
        point.speedup_slowest = work * ratio(base.seconds_slowest, point.seconds_slowest);
        // What a table gives of a whole run is both readings.
        const auto average = [](const ScalingPoint& one) {
            return std::isfinite(one.seconds_average) ? one.seconds_average : one.seconds_slowest;
        };
        if (std::isfinite(point.seconds_average)) point.speedup_average = work * ratio(average(base), average(point));
        point.speedup_interval = {work * ratio(base.seconds_interval.low, point.seconds_interval.high),
                                  work * ratio(base.seconds_interval.high, point.seconds_interval.low)};
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
    if (kind == Kind::strong && ranks > 1 && point.speedup_slowest > 0)
        point.karp_flatt = (1 / point.speedup_slowest - 1 / ranks) / (1 - 1 / ranks);
}

std::string seconds_words(double seconds) {
    if (seconds < 1) return fmt::format("{:.3f} ms", 1e3 * seconds);
    return fmt::format("{:.2f} s", seconds);
}

// "rank 0 took 706.41 s, the others 415.71 s to 418.27 s"
std::string spread_words(const Measurement& run) {
    std::size_t slow = 0;
    for (std::size_t r = 0; r < run.rank.size(); ++r)
        if (run.rank[r].seconds > run.rank[slow].seconds || !std::isfinite(run.rank[slow].seconds)) slow = r;
    std::vector<double> others;
    for (std::size_t r = 0; r < run.rank.size(); ++r)
        if (r != slow && std::isfinite(run.rank[r].seconds)) others.push_back(run.rank[r].seconds);
    std::string words = fmt::format("rank {} took {}", slow, seconds_words(run.rank[slow].seconds));
    if (others.size() == 1) words += fmt::format(", the other {}", seconds_words(others.front()));
    if (others.size() > 1)
        words += fmt::format(", the others {} to {}", seconds_words(smallest(others)), seconds_words(largest(others)));
    return words;
}

// "8 threads on 4 cores": of the host with most threads a core; empty where each thread has a core, or nothing is
// known.
std::string crowd_words(const Measurement& run) {
    struct Host {
        std::int64_t threads = 0;
        cluster::CpuSet cores;
    };
    std::map<std::string, Host> hosts;
    for (const RankMeasurement& rank : run.rank) {
        Host& host = hosts[rank.host];
        host.threads += std::max<std::int64_t>(rank.threads, 1);
        try {
            host.cores = host.cores | cluster::CpuSet::parse(rank.cores);
        } catch (const Error&) {
            return "";  // a list that the recorder cut, or none
        }
    }
    std::string words;
    double most = 1;
    for (const auto& [name, host] : hosts) {
        const auto cores = static_cast<std::int64_t>(host.cores.size());
        if (cores == 0 || static_cast<double>(host.threads) <= most * static_cast<double>(cores)) continue;
        most = static_cast<double>(host.threads) / static_cast<double>(cores);
        words = fmt::format("{} threads on {} cores", host.threads, cores);
    }
    return words;
}

void remark_on(ScalingPoint& point, const ScalingPoint& base, Kind kind, double work, const Measurement& run,
               const std::string& unit) {
    auto& remarks = point.remarks;
    const double ranks = static_cast<double>(point.ranks) / static_cast<double>(base.ranks);
    const bool is_base = point.ranks == base.ranks;
    const std::string than_linear = fmt::format("{:.2f} on {:g} times the ranks", point.speedup_average, ranks);
    const bool by_time = point.load_balance_by == "time";
    if (!is_base && point.efficiency_average > superlinear && !(point.efficiency > superlinear))
        remarks.push_back(fmt::format(
            "Averaging over the ranks would claim a speedup of {}, more than linear. It is not real: {}, and "
            "a {} ends with its slowest rank, so the speedup is {:.2f}.",
            than_linear, spread_words(run), unit, point.speedup_slowest));
    else if (by_time && point.load_balance < out_of_balance)
        remarks.push_back(
            fmt::format("The ranks are out of balance: {}; averaging over them would claim a speedup of "
                        "{:.2f} instead of {:.2f}.",
                        spread_words(run), point.speedup_average, point.speedup_slowest));
    else if (point.load_balance < out_of_balance)
        remarks.push_back(fmt::format("The ranks are out of balance (load balance {:.2f} by {}).", point.load_balance,
                                      point.load_balance_by));
    if (!is_base && point.efficiency > superlinear && std::isfinite(point.seconds_slowest)) {
        std::string cause =
            "the base case may be slow for a reason of its own (memory, cores shared with others, a cold cache)";
        if (point.computation_scaling > superlinear)
            cause = fmt::format(
                "all ranks together computed {:.0f} % less than the base case, so its parts were too large for caches "
                "or memory, or it had fewer or busier cores for the work",
                100 * (1 - 1 / point.computation_scaling));
        remarks.push_back(
            fmt::format("The speedup of {:.2f} on {:g} times the ranks is more than linear: {}. A base case "
                        "on more ranks is the more honest one.",
                        point.speedup_slowest, ranks, cause));
    }
    // Ranks that took less than an equal share of the base's time did less work, or the base is slow.
    if (!is_base && by_time && kind == Kind::strong) {
        const double share = work * base.seconds_slowest / ranks;
        std::vector<std::string> fast;
        for (std::size_t r = 0; r < run.rank.size(); ++r)
            if (run.rank[r].seconds < same_work_share * share) fast.push_back(fmt::format("{}", r));
        if (!fast.empty() && fast.size() < run.rank.size())
            remarks.push_back(fmt::format(
                "{} {} took less than an equal share of the base case ({}): the ranks did not do equal work, "
                "or the base case is slow.",
                fast.size() == 1 ? "Rank" : "Ranks", fmt::join(fast, ", "), seconds_words(share)));
    }
    if (std::isfinite(point.efficiency_slowest_rate))
        remarks.push_back(fmt::format(
            "Only rates are known. If all wait for the slowest rank, {} tokens/s come together, an "
            "efficiency of {:.1f} %.",
            with_commas(std::llround(point.tokens_per_second_slowest)), 100 * point.efficiency_slowest_rate));
    if (const std::string crowd = crowd_words(run); !crowd.empty())
        remarks.push_back(fmt::format("The ranks shared cores ({}): more ranks were not more hardware.", crowd));
    for (const std::string& remark : run.remarks)
        remarks.push_back(run.name.empty() ? remark : fmt::format("{}: {}", run.name, remark));
}

// What a law is fitted to: seconds where they are known, otherwise the time for a token.
std::vector<FitPoint> fit_points(const ScalingSeries& series, const std::vector<Measurement>& all, bool rates) {
    std::vector<FitPoint> points;
    const ScalingPoint& base = series.points[series.base];
    for (const ScalingPoint& point : series.points) {
        const bool timed = std::isfinite(point.seconds_slowest);
        const double work = work_ratio(all[point.runs.front()], all[base.runs.front()]);
        const auto converted = [&](double seconds) { return rates ? work / seconds : seconds; };
        FitPoint fit;
        fit.ranks = static_cast<double>(point.ranks);
        fit.value =
            timed ? converted(point.seconds_slowest) : (rates ? point.tokens_per_second : 1 / point.tokens_per_second);
        if (timed)
            for (const std::size_t run : point.runs)
                for (const StepSample& step : all[run].steps)
                    if (std::isfinite(step.slowest)) fit.samples.push_back(converted(step.slowest));
        points.push_back(std::move(fit));
    }
    return points;
}

void fit_laws(ScalingSeries& series, const std::vector<Measurement>& all, const ScalingOptions& options) {
    std::vector<std::string> laws = options.laws;
    if (laws.empty()) laws = {series.kind == Kind::strong ? "amdahl" : "gustafson", "universal_scalability"};
    for (const std::string& law : laws) {
        if (law == "amdahl" && series.kind == Kind::strong)
            series.fits.push_back(fit_amdahl(fit_points(series, all, false), options.predict_at));
        if (law == "gustafson" && series.kind == Kind::weak) {
            // In units of the base: its ranks and its rate.
            std::vector<FitPoint> points = fit_points(series, all, true);
            const FitPoint base = points[series.base];
            for (FitPoint& point : points) {
                point.ranks /= base.ranks;
                point.value /= base.value;
                for (double& sample : point.samples) sample /= base.value;
            }
            std::vector<double> predict_at = options.predict_at;
            for (double& ranks : predict_at) ranks /= base.ranks;
            Fit fit = fit_gustafson(points, predict_at);
            for (Prediction& prediction : fit.predictions) prediction.ranks *= base.ranks;
            if (fit.at) fit.at = [inner = fit.at, ranks = base.ranks](double at) { return inner(at / ranks); };
            series.fits.push_back(std::move(fit));
        }
        if (law == "universal_scalability")
            series.fits.push_back(fit_universal_scalability(fit_points(series, all, true), options.predict_at));
        if (law == "extra_p") series.fits.push_back(fit_extra_p(fit_points(series, all, false), options.predict_at));
    }
}

ScalingSeries series_of(const Group& group, const std::vector<Measurement>& all, const ScalingOptions& options) {
    ScalingSeries series;
    series.title = group.title;
    series.kind = group.kind;
    series.kind_reason = group.kind_reason;
    series.remarks = group.remarks;
    series.unit = all[group.runs.front()].imported ? "run" : "step";
    std::map<std::int64_t, std::vector<ScalingPoint>> of_ranks;
    for (const std::size_t run : group.runs) of_ranks[all[run].ranks].push_back(point_of(all[run], run));
    for (const auto& [ranks, points] : of_ranks) series.points.push_back(merge(points));
    if (options.base_ranks > 0) {
        const auto found = std::find_if(series.points.begin(), series.points.end(),
                                        [&](const auto& point) { return point.ranks == options.base_ranks; });
        if (found == series.points.end())
            throw usage_error("no run of the series with {} has {} ranks; --base takes one of its numbers of ranks",
                              series.title, options.base_ranks);
        series.base = static_cast<std::size_t>(found - series.points.begin());
    }
    const ScalingPoint base = series.points[series.base];
    for (ScalingPoint& point : series.points) {
        const Measurement& run = all[point.runs.front()];
        const double work = work_ratio(run, all[base.runs.front()]);
        compare_with_base(point, base, series.kind, work);
        remark_on(point, base, series.kind, work, run, series.unit);
        for (std::size_t i = 1; i < point.runs.size(); ++i)
            for (const std::string& remark : all[point.runs[i]].remarks)
                point.remarks.push_back(fmt::format("{}: {}", all[point.runs[i]].name, remark));
    }
    if (base.ranks > 1)
        series.remarks.push_back(fmt::format(
            "The base case has {} ranks: what they lose among themselves is in no speedup and no efficiency.",
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
        scaling.remarks.push_back(
            fmt::format("{} holds neither a step that counts nor a rate: it is left out.", all[*i].name));
        scaling.measurements.erase(scaling.measurements.begin() + static_cast<std::ptrdiff_t>(*i));
    }
    const Grouping groups = group_runs(all, options.kind, options.ignored);
    scaling.remarks.insert(scaling.remarks.end(), groups.remarks.begin(), groups.remarks.end());
    for (const Group& group : groups.groups) scaling.series.push_back(series_of(group, all, options));
    return scaling;
}

}  // namespace lockstep::analysis
