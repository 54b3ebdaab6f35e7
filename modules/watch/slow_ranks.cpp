#include "watch/slow_ranks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/log.hpp"

namespace lockstep::watch {
namespace {

constexpr double longer = 1.1, least_difference_seconds = 1e-3;
constexpr std::size_t windows_in_a_row = 3;
constexpr std::int64_t repeat_after = 1000;  // steps

// Lower median.
double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void keep_newest(std::vector<double>& values, double newest) {
    values.push_back(newest);
    if (values.size() > windows_in_a_row) values.erase(values.begin());
}

struct Described {
    int stage;
    std::array<char, 64> host;
};

SlowRankRule gather_rule(cluster::HostGroup& group, int stage, const std::string& host, bool own_devices,
                         std::int64_t window) {
    Described own{stage, {}};
    std::memcpy(own.host.data(), host.data(), std::min(host.size(), own.host.size() - 1));
    const std::vector<char> all = group.gather(&own, sizeof own, 0);
    std::vector<int> stages;
    std::vector<std::string> hosts;
    for (std::size_t at = 0; at < all.size(); at += sizeof own) {
        std::memcpy(&own, all.data() + at, sizeof own);
        stages.push_back(own.stage);
        hosts.emplace_back(own.host.data());
    }
    return {stages, std::move(hosts), own_devices, window};
}

}  // namespace

SlowRankRule::SlowRankRule(const std::vector<int>& stage_of_rank, std::vector<std::string> host_of_rank,
                           bool own_devices, std::int64_t window)
    : ranks_(stage_of_rank.size()), own_devices_(own_devices), window_(window) {
    LOCKSTEP_ASSERT(stage_of_rank.size() == host_of_rank.size() && window > 0);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        ranks_[rank].stage = stage_of_rank[rank];
        ranks_[rank].host = std::move(host_of_rank[rank]);
        Stage& stage = stages_[ranks_[rank].stage];
        if (stage.ranks++ == 0) stage.first = rank;
        stage.one_host = stage.one_host && ranks_[rank].host == ranks_[stage.first].host;
    }
    for (auto& [number, stage] : stages_) stage.judged = stage.ranks > 2 || !stage.one_host || own_devices_;
}

SlowRankRule::Remark SlowRankRule::name(int number, std::int64_t step) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    rank.named = true;
    rank.named_at = step;
    const Stage& stage = stages_.at(rank.stage);
    const char* where = !stage.one_host ? "its node (clocks, temperature, other jobs)"
                        : own_devices_  ? "its GPU (clocks, temperature, other programs)"
                                        : "its cores (other programs, clocks)";
    const double worked = mean(rank.worked), reference = mean(rank.medians);
    return {true, fmt::format("rank {} (host {}) is {:.0f} % slower per step than the median of the {} ranks with "
                              "the same part of the model ({:.1f} vs {:.1f} ms) in the last {} timed steps, up to "
                              "step {}: check {}",
                              number, rank.host, 100 * (worked / reference - 1), stage.ranks, worked * 1e3,
                              reference * 1e3, window_ * static_cast<std::int64_t>(rank.worked.size()), step, where)};
}

std::vector<SlowRankRule::Remark> SlowRankRule::judge(const std::vector<double>& means, std::int64_t step) {
    LOCKSTEP_ASSERT(means.size() == ranks_.size());
    std::map<int, std::vector<double>> of_stages;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) of_stages[ranks_[rank].stage].push_back(means[rank]);
    std::map<int, double> medians;
    for (auto& [stage, values] : of_stages) medians[stage] = median(std::move(values));
    std::vector<Remark> remarks;
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
        Rank& rank = ranks_[number];
        const double reference = medians[rank.stage], worked = means[number];
        const bool slow = stages_.at(rank.stage).judged && worked > longer * reference &&
                          worked - reference >= least_difference_seconds;
        keep_newest(rank.worked, worked);
        keep_newest(rank.medians, reference);
        rank.slow_in_a_row = slow ? rank.slow_in_a_row + 1 : 0;
        rank.good_in_a_row = slow ? 0 : rank.good_in_a_row + 1;
        const bool for_long = rank.slow_in_a_row >= static_cast<int>(windows_in_a_row);
        if (for_long && (!rank.named || step - rank.named_at >= repeat_after))
            remarks.push_back(name(static_cast<int>(number), step));
        if (rank.named && rank.good_in_a_row >= static_cast<int>(windows_in_a_row)) {
            rank.named = false;
            remarks.push_back({false, fmt::format("rank {} (host {}) is as fast as the others again since step {}",
                                                  number, rank.host, step)});
        }
    }
    return remarks;
}

SlowRanks::SlowRanks(cluster::HostGroup& group, int stage, const std::string& host, bool own_devices,
                     std::int64_t window)
    : group_(group), rule_(gather_rule(group, stage, host, own_devices, window)), window_(window) {}

void SlowRanks::add(std::int64_t step, double worked) {
    worked_ += worked;
    if (++steps_ < window_) return;
    const double own = worked_ / static_cast<double>(steps_);
    steps_ = 0;
    worked_ = 0;
    const std::vector<char> all = group_.gather(&own, sizeof own, 0);
    if (group_.rank() != 0) return;
    std::vector<double> means(all.size() / sizeof own);
    std::memcpy(means.data(), all.data(), all.size());
    for (const SlowRankRule::Remark& remark : rule_.judge(means, step)) {
        if (remark.slow)
            log::warning("{}", remark.sentence);
        else
            log::info("{}", remark.sentence);
    }
}

}  // namespace lockstep::watch
