#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>

#include "analysis/exchange/formats.hpp"
#include "analysis/load/series.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::size_t wanted_points = 5;  // that Extra-P asks for, to tell one model from another

using Points = std::map<std::int64_t, std::vector<const Measurement*>>;

// What keeps two runs from one scaling series, strong or weak; "" where nothing does.
std::string obstacle(const Measurement& a, const Measurement& b) {
    const bool weak = a.batch > 0 && b.batch > 0 &&
                      static_cast<double>(a.batch) * static_cast<double>(b.ranks) ==
                          static_cast<double>(b.batch) * static_cast<double>(a.ranks);
    for (const Difference& difference : differences({&a, &b}))
        if (!is_only_marked(difference.key) && !(difference.key == "batch.global" && weak)) return words_of(difference);
    if (a.imported != b.imported) return "their source (table or trace)";
    return "";
}

Points points_of(const std::vector<Measurement>& measurements) {
    Points points;
    for (const Measurement& run : measurements) points[run.ranks].push_back(&run);
    if (points.size() < 2)
        throw usage_error("Extra-P needs runs on different numbers of ranks; these are all on {}",
                          points.begin()->first);
    // Two runs on different numbers of ranks settle what the series is.
    const auto other = std::find_if(measurements.begin(), measurements.end(),
                                    [&](const Measurement& run) { return run.ranks != measurements.front().ranks; });
    for (const Measurement* one : {&measurements.front(), &*other})
        for (const Measurement& run : measurements)
            if (const std::string words = obstacle(*one, run); !words.empty())
                throw usage_error("{} and {} are not of one scaling series: they differ in {}; give runs of one series",
                                  one->path, run.path, words);
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
    if (regions.empty())
        throw usage_error("a run on each number of ranks must have measured times; one of these has none");
    for (std::size_t phase = 0; phase < phase_count; ++phase)
        regions += region(phase_names[phase], points, [&](const StepSample& step) { return step.phases[phase]; });
    if (points.size() < wanted_points)
        log::warning("{} different numbers of ranks; Extra-P asks for {} to find a model", points.size(),
                     wanted_points);
    output.write(header + "\n" + regions);
}

}  // namespace lockstep::analysis
