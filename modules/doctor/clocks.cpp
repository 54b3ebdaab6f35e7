#include "doctor/clocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::doctor {
namespace {

constexpr int questions = 12;

}  // namespace

ClockOffset clock_offset(const std::vector<ClockReading>& readings) {
    LOCKSTEP_ASSERT(!readings.empty());
    const ClockReading& best = *std::min_element(
        readings.begin(), readings.end(),
        [](const ClockReading& a, const ClockReading& b) { return a.answered - a.asked < b.answered - b.asked; });
    return {best.said - (best.asked + best.answered) / 2, (best.answered - best.asked) / 2};
}

std::vector<ClockOffset> measure_clocks(cluster::HostGroup& control, const std::vector<int>& speakers) {
    control.barrier();
    const int rank = control.rank();
    std::vector<ClockOffset> offsets;
    for (const int speaker : speakers) {
        if (speaker == 0) {
            if (rank == 0) offsets.push_back({});
            continue;
        }
        if (rank != 0 && rank != speaker) continue;
        std::vector<ClockReading> readings(questions);
        for (ClockReading& reading : readings) {
            double time = wall_seconds();
            if (rank == 0) {
                reading.asked = time;
                control.exchange({{speaker, &reading.said, sizeof reading.said}}, {{speaker, &time, sizeof time}});
                reading.answered = wall_seconds();
            } else {
                control.exchange({{0, &time, sizeof time}}, {});
                time = wall_seconds();
                control.exchange({}, {{0, &time, sizeof time}});
            }
        }
        if (rank == 0) offsets.push_back(clock_offset(readings));
    }
    return offsets;
}

std::vector<Finding> wrong_clocks(const std::vector<ClockOffset>& offsets, const std::vector<std::string>& hosts) {
    LOCKSTEP_ASSERT(offsets.size() == hosts.size());
    std::vector<Finding> findings;
    for (std::size_t node = 0; node < offsets.size(); ++node) {
        const ClockOffset& offset = offsets[node];
        if (std::abs(offset.ahead) - offset.uncertainty <= most_ahead_seconds) continue;
        findings.push_back({"wrong-clock",
                            fmt::format("the wall clock is {} {} that of {}", human_seconds(std::abs(offset.ahead)),
                                        offset.ahead > 0 ? "ahead of" : "behind", hosts.front()),
                            {hosts[node]},
                            "tell the site (chrony, NTP); file and log times are misleading, traces correct for it",
                            ""});
    }
    return findings;
}

}  // namespace lockstep::doctor
