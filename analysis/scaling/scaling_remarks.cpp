#include "analysis/scaling/scaling_remarks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "cluster/cpu_set.hpp"

namespace lockstep::analysis {
namespace {

constexpr double superlinear = 1.005;     // an efficiency above it gets a remark
constexpr double noisy = 0.1;             // steps are noisy if the mean exceeds the median by this share
constexpr double out_of_balance = 0.9;    // a load balance below it gets a remark
constexpr double same_work_share = 0.98;  // a rank with less than this of an equal share of the base's time

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
        words +=
            fmt::format(", the others {} to {}", seconds_words(smallest_of(others)), seconds_words(largest_of(others)));
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

// "Rank 3", "Ranks 1, 2, 3", the first few of many.
std::string ranks_words(const std::vector<std::size_t>& ranks) {
    constexpr std::size_t shown = 8;
    const std::vector<std::size_t> first(ranks.begin(),
                                         ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size())));
    std::string words = fmt::format("{} {}", ranks.size() == 1 ? "Rank" : "Ranks", fmt::join(first, ", "));
    if (ranks.size() > shown) words += fmt::format(" and {} more", ranks.size() - shown);
    return words;
}

// `ranks`: of the point over those of the base.
void remark_on_balance(ScalingPoint& point, const Measurement& run, const std::string& unit, double ranks) {
    if (point.efficiency_average > superlinear && point.efficiency <= superlinear && ranks > 1 &&
        std::isfinite(point.seconds_slowest)) {
        point.remarks.push_back(fmt::format(
            "Averaging over the ranks would give a speedup of {:.2f} on {:g} times the ranks, more than linear. It is "
            "not real: {}, and a {} ends with its slowest rank, so the speedup is {:.2f}.",
            point.speedup_average, ranks, spread_words(run), unit, point.speedup_slowest));
    } else if (run.imported && point.load_balance_time < out_of_balance) {
        point.remarks.push_back(fmt::format(
            "The ranks are imbalanced: {}; averaging over them would give a speedup of {:.2f} instead of {:.2f}.",
            spread_words(run), point.speedup_average, point.speedup_slowest));
    } else if (point.load_balance < out_of_balance) {
        point.remarks.push_back(fmt::format("The ranks are imbalanced (load balance {:.2f} by {}).", point.load_balance,
                                            point.load_balance_by));
    }
}

void remark_on_superlinear(ScalingPoint& point, Kind kind, double ranks) {
    if (!(point.efficiency > superlinear) || ranks <= 1 || !std::isfinite(point.seconds_slowest)) return;
    if (point.speedup_interval.known() && point.speedup_interval.low <= ranks) {
        point.remarks.push_back(
            fmt::format("The speedup of {:.2f} on {:g} times the ranks is more than linear, but within "
                        "the noise ({:.2f} to {:.2f}).",
                        point.speedup_slowest, ranks, point.speedup_interval.low, point.speedup_interval.high));
        return;
    }
    std::string cause = "the base case may be slow for another reason (memory, cores shared with others, a cold cache)";
    if (point.computation_scaling > superlinear && kind == Kind::strong)
        cause = fmt::format(
            "all ranks together computed {:.0f} % less than the base case, whose share per rank was too large for the "
            "caches or memory, or which had fewer or busier cores for the work",
            100 * (1 - 1 / point.computation_scaling));
    if (point.computation_scaling > superlinear && kind == Kind::weak)
        cause = fmt::format(
            "each rank computed its equal share in {:.0f} % less time than in the base case, which was "
            "slow for another reason (busier cores, memory, a cold cache)",
            100 * (1 - 1 / point.computation_scaling));
    point.remarks.push_back(fmt::format(
        "The speedup of {:.2f} on {:g} times the ranks is more than linear: {}. A base case on more ranks would be "
        "fairer.",
        point.speedup_slowest, ranks, cause));
}

// A mean far above the median: a few steps took very long, and throughput follows the mean.
void remark_on_noise(ScalingPoint& point, const Measurement& run) {
    if (run.imported || run.steps.empty()) return;
    const double excess = mean(run.slowest_seconds()) / point.seconds_slowest - 1;
    if (excess > noisy)
        point.remarks.push_back(
            fmt::format("The mean step is {:.0f} % longer than the median: some steps were disturbed; the whole run "
                        "averages {} tokens/s.",
                        100 * excess, with_commas(std::llround(std::min(run.tokens_per_second(), 1e15)))));
}

}  // namespace

std::string seconds_words(double seconds) {
    if (seconds < 1) return fmt::format("{:.3f} ms", 1e3 * seconds);
    return fmt::format("{:.2f} s", seconds);
}

void remark_on(ScalingPoint& point, const ScalingPoint& base, const Scaling& scaling, const ScalingSeries& series,
               double work) {
    const Measurement& run = scaling.measurements[point.runs.front()];
    auto& remarks = point.remarks;
    const double ranks = static_cast<double>(point.ranks) / static_cast<double>(base.ranks);
    remark_on_balance(point, run, series.unit, ranks);
    remark_on_superlinear(point, series.kind, ranks);
    remark_on_noise(point, run);
    // Ranks that took less than an equal share of the base's time did less work, or the base is slow.
    if (ranks > 1 && run.imported && series.kind == Kind::strong && point.load_balance_time < 1) {
        const double share = work * base.seconds_slowest / ranks;
        std::vector<std::size_t> fast;
        for (std::size_t r = 0; r < run.rank.size(); ++r)
            if (run.rank[r].seconds < same_work_share * share) fast.push_back(r);
        if (!fast.empty() && fast.size() < run.rank.size())
            remarks.push_back(
                fmt::format("{} took less than an equal share of the base case ({}): the ranks did not do equal work, "
                            "or the base case is slow.",
                            ranks_words(fast), seconds_words(share)));
    }
    if (std::isfinite(point.efficiency_slowest_rate))
        remarks.push_back(fmt::format(
            "Only rates are known. If all ranks wait for the slowest, the total is {:.0f} tokens/s, an efficiency of "
            "{:.1f} %.",
            point.tokens_per_second_slowest, 100 * point.efficiency_slowest_rate));
    const double threads = point.threads / base.threads;
    if (std::isfinite(threads) && threads != ranks)
        remarks.push_back(fmt::format("{:g} times the ranks had {} threads: per thread, the efficiency is {:.1f} %.",
                                      ranks, threads == 1 ? "no more" : fmt::format("{:g} times the", threads),
                                      100 * point.speedup_slowest / threads));
    if (const std::string crowd = crowd_words(run); !crowd.empty())
        remarks.push_back(fmt::format("The ranks shared cores ({}): more ranks were not more hardware.", crowd));
    for (const std::size_t index : point.runs)
        for (const std::string& remark : scaling.measurements[index].remarks)
            remarks.push_back(fmt::format("{}: {}", scaling.measurements[index].name, remark));
}

}  // namespace lockstep::analysis
