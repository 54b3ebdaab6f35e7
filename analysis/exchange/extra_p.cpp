#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <string>

#include "analysis/exchange/formats.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::size_t wanted_points = 5;  // that Extra-P asks for, to tell one model from another

using Points = std::map<std::int64_t, std::vector<const Measurement*>>;

// What two repetitions of one point must have in common.
bool same_setup(const Measurement& a, const Measurement& b, std::string& difference) {
    const auto value = [](const Measurement& run, const std::string& key) {
        const auto found = run.settings.find(key);
        return found == run.settings.end() ? std::string("not given") : found->second;
    };
    for (const Measurement* run : {&a, &b})
        for (const auto& [key, unused] : run->settings) {
            const bool matters = key.rfind("model.", 0) == 0 || key.rfind("batch.", 0) == 0 ||
                                 key.rfind("precision.", 0) == 0 || key.rfind("parallel.", 0) == 0 || key == "gpu";
            if (!matters || value(a, key) == value(b, key)) continue;
            difference = fmt::format("{} is {} in {} and {} in {}", key, value(a, key), a.path, value(b, key), b.path);
            return false;
        }
    return true;
}

Points points_of(const std::vector<Measurement>& measurements) {
    Points points;
    for (const Measurement& run : measurements) {
        auto& there = points[run.ranks];
        std::string difference;
        if (!there.empty() && !same_setup(*there.front(), run, difference))
            throw usage_error("two runs on {} ranks are not repetitions of each other: {}; give runs of one series",
                              run.ranks, difference);
        there.push_back(&run);
    }
    if (points.size() < 2)
        throw usage_error("Extra-P needs runs on different numbers of ranks; these are all on {}",
                          points.begin()->first);
    return points;
}

// One value for each step of each repetition; "" where a point has none, since Extra-P wants all of them.
template <class Value>
std::string region(const std::string& name, const Points& points, const Value& value) {
    std::string text = fmt::format("\nREGION {}\nMETRIC time\n", name);
    bool spent = false;
    for (const auto& [ranks, runs] : points) {
        std::string line;
        for (const Measurement* run : runs)
            for (const StepSample& step : run->steps) {
                const double seconds = value(step);
                if (!std::isfinite(seconds)) continue;
                fmt::format_to(std::back_inserter(line), " {}", seconds);
                spent = spent || seconds > 0;
            }
        if (line.empty()) return "";
        text += "DATA" + line + "\n";
    }
    return spent ? text : "";
}

}  // namespace

void write_extra_p(const std::vector<Measurement>& measurements, Output& output) {
    const Points points = points_of(measurements);
    std::string header = "PARAMETER p\nPOINTS";
    for (const auto& [ranks, runs] : points) header += fmt::format(" {}", ranks);
    std::string regions = region("step", points, [](const StepSample& step) { return step.slowest; });
    if (regions.empty()) throw usage_error("a run on each number of ranks must have measured times; one here has none");
    for (std::size_t phase = 0; phase < phase_count; ++phase)
        regions += region(phase_names[phase], points, [&](const StepSample& step) { return step.phases[phase]; });
    if (points.size() < wanted_points)
        log::warning("{} different numbers of ranks; Extra-P asks for {} to find a model", points.size(),
                     wanted_points);
    output.write(header + "\n" + regions);
}

}  // namespace lockstep::analysis
