#include "plan/checkpoint_interval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "cost/prices.hpp"
#include "optim/registry.hpp"

namespace lockstep::plan {

double best_checkpoint_interval(double cost, double mean_time_between_failures) {
    if (cost <= 0 || mean_time_between_failures <= 0) return 0;
    return std::max(cost, std::sqrt(2 * cost * mean_time_between_failures));
}

CheckpointIntervals checkpoint_intervals(const config::Machine& machine, const cost::Job& job,
                                         const cost::Layout& layout) {
    CheckpointIntervals intervals;
    if (!job.own_program() || machine.failures.node_mtbf_hours <= 0) return intervals;
    const config::RunDescription run = cost::laid_out(job, layout);
    const std::int64_t on_node = cost::ranks_per_node(machine, job);
    const auto nodes = static_cast<double>((layout.ranks() + on_node - 1) / on_node);
    intervals.between_failures = machine.failures.node_mtbf_hours * 3600 / nodes;
    const double of_node = static_cast<double>(optim::checkpoint_bytes(run)) / nodes;
    if (const double rate = machine.storage.local_gb_per_second * 1e9; rate > 0) {
        const bool copies = nodes > 1 && run.checkpoint.partner;
        intervals.local_cost =
            copies ? 2 * of_node / rate + of_node / machine.network_bytes_per_second() : of_node / rate;
        intervals.local = best_checkpoint_interval(intervals.local_cost, intervals.between_failures);
    }
    const double described = machine.storage.shared_gb_per_second;
    if (const double rate = (described > 0 ? described : machine.rates.checkpoint_gb_per_second) * 1e9; rate > 0) {
        intervals.shared_cost = of_node / rate;
        intervals.shared = best_checkpoint_interval(intervals.shared_cost, intervals.between_failures);
    }
    return intervals;
}

std::string intervals_text(const CheckpointIntervals& intervals, double step_seconds) {
    std::string text;
    const auto add = [&](const char* which, double seconds) {
        if (seconds <= 0) return;
        const auto steps = std::max<std::int64_t>(1, std::llround(seconds / step_seconds));
        text += fmt::format("{}{} every {} ({} step{})", text.empty() ? "" : ", ", which, human_seconds(seconds),
                            with_commas(steps), plural(steps));
    };
    add("local", intervals.local);
    add("shared", intervals.shared);
    if (intervals.between_failures <= 0) return "";
    if (text.empty()) text = "no interval, since the machine description lacks storage.shared_gb_per_second";
    return text + ", with a node failure every " + human_seconds(intervals.between_failures);
}

}  // namespace lockstep::plan
