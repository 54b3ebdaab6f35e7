#include "calibrate/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/whole_file.hpp"
#include "calibrate/timing.hpp"
#include "checkpoint/probe.hpp"
#include "cluster/agree.hpp"
#include "data/dataset.hpp"

namespace lockstep::calibrate {
namespace {

namespace fs = std::filesystem;

constexpr double shortest_group_seconds = 5e-4;
constexpr int fewest_groups = 3, most_groups = 100;
constexpr double counted_share = 0.5;  // the quantile that counts: the median

}  // namespace

double Meter::once(const std::function<void(int)>& call, int first, int calls) const {
    return seconds_of(rank_.backend,
                      [&] {
                          for (int i = 0; i < calls; ++i) call(first + i);
                      }) /
           calls;
}

double Meter::repeated(const std::function<void(int)>& call, double estimate) const {
    const int calls = static_cast<int>(std::clamp(shortest_group_seconds / std::max(estimate, 1e-9), 1.0, 1000.0));
    const int groups = std::clamp(static_cast<int>(budget_seconds_ / (estimate * calls)), fewest_groups, most_groups);
    std::vector<double> seconds;
    for (int i = 0; i < groups; ++i) seconds.push_back(once(call, 2 + i * calls, calls));
    const auto counted = seconds.begin() + static_cast<std::ptrdiff_t>(counted_share * static_cast<double>(groups));
    std::nth_element(seconds.begin(), counted, seconds.end());
    return *counted;
}

double Rounds::seconds(const std::function<double()>& measure) {
    if (measured_) {
        std::vector<double>& times = times_.at(next_++);
        const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
        std::nth_element(times.begin(), middle, times.end());
        return *middle;
    }
    if (next_ == times_.size()) times_.emplace_back();
    const double seconds = measure();
    times_[next_++].push_back(seconds);
    return seconds;
}

double Rounds::spread() const {
    std::vector<double> all;
    for (const std::vector<double>& times : times_) {
        std::vector<double> sorted = times;
        std::sort(sorted.begin(), sorted.end());
        const double middle = sorted[sorted.size() / 2];
        if (middle > 0) all.push_back((sorted.back() - sorted.front()) / middle);
    }
    if (all.empty()) return 0;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
}

double Meter::seconds(const std::function<void(int)>& call) const {
    if (!rank_.rounds) return of_all_ranks(call);
    return rank_.rounds->seconds([&] { return of_all_ranks(call); });
}

double Meter::of_all_ranks(const std::function<void(int)>& call) const {
    once(call, 0, 1);  // a warm-up
    std::vector<double> estimate = {once(call, 1, 1)};
    rank_.control.all_reduce(estimate, cluster::Reduce::maximum);
    rank_.control.barrier();
    return rank_.control.all_sum(repeated(call, estimate[0])) / rank_.control.size();
}

double Meter::seconds_alone(const std::function<void(int)>& call) const {
    once(call, 0, 1);
    return repeated(call, once(call, 1, 1));
}

void calibrate_files(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates) {
    std::vector<double> measured = {0, 0};
    cluster::together(rank.control, [&] {
        if (rank.control.rank() != 0) return;
        measured[1] = checkpoint::probe_folder(options.folder, "lockstep-bench.tmp").bytes_per_second * 1e-9;
        // Tokens in the format of llm.c: 256 integers of 32 bits, then 16 bits a token.
        const std::string path = options.folder + "/lockstep-bench.bin";
        constexpr std::int32_t tokens = 1 << 18, length = 256;
        const std::array<std::int32_t, 256> header = {20240520, 1, tokens};
        std::string content(reinterpret_cast<const char*>(header.data()), sizeof header);
        const RandomStream stream(1, "calibration");
        for (std::uint64_t i = 0; i < tokens; ++i) {
            const auto token = static_cast<std::uint16_t>(stream.bits(i) % 50000);
            content.append(reinterpret_cast<const char*>(&token), sizeof token);
        }
        write_whole_file(path, content);
        {
            data::DatasetOptions dataset;
            dataset.paths = {path};
            dataset.length = length;
            const data::Dataset data(dataset);
            std::vector<std::int32_t> ids(length), targets(length);
            const Meter meter(rank, 0.02);
            const double seconds = meter.seconds_alone([&](int i) { data.fetch(i, ids.data(), targets.data()); });
            measured[0] = length / seconds * 1e-6;
        }
        fs::remove(path);
    });
    rank.control.broadcast(measured.data(), measured.size() * sizeof(double), 0);
    rates.loading_mtokens_per_second = measured[0];
    rates.checkpoint_gb_per_second = measured[1];
}

config::Rates calibrate(const CalibrationRank& rank, const CalibrationOptions& options) {
    config::Rates rates;
    rates.ranks = rank.ranks_of_node;
    rates.cores = rank.cores_of_node;
    Rounds rounds(options.finished);
    CalibrationRank measured = rank;
    measured.rounds = &rounds;
    const auto kernels_and_messages = [&](const CalibrationOptions& round) {
        rounds.begin();
        calibrate_kernels(measured, round, rates);
        if (rank.control.size() > 1) calibrate_messages(measured, round, rates);
    };
    const int count = options.quick ? 1 : 3;
    for (int number = rounds.finished() + 1; number <= count; ++number) {
        CalibrationOptions round = options;
        if (options.say)
            round.say = [&](const std::string& what) { options.say(fmt::format("{} of {}: {}", number, count, what)); };
        kernels_and_messages(round);
        if (options.keep) options.keep(rounds.times());
    }
    rounds.end_measuring();
    rates.repeat_spread = rounds.spread();
    CalibrationOptions silent = options;
    silent.say = {};
    kernels_and_messages(silent);
    LOCKSTEP_ASSERT(rounds.at_end());
    calibrate_files(rank, options, rates);
    return rates;
}

}  // namespace lockstep::calibrate
