#include "analysis/exchange/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

// Whole nanoseconds: rounding start and end alike keeps a child inside its parent.
std::optional<std::int64_t> nanoseconds(double seconds) {
    constexpr double most = 4e9;  // more than a hundred years: not a time
    if (!(std::abs(seconds) < most)) return std::nullopt;
    return std::llround(seconds * 1e9);
}

// A part's own rows do not tell: it may hold events of steps whose rows are in the part before.
std::vector<std::int64_t> end_steps_of(const trace::Run& run) {
    std::vector<std::int64_t> ends(run.parts.size());
    std::int64_t end = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = run.parts.size(); i-- > 0;) {
        ends[i] = end;
        const auto& steps = run.parts[i].file.steps();
        if (!steps.empty()) end = std::min(end, steps.front().step);
    }
    return ends;
}

// Ends no event later than the one around it; returns how many did.
std::size_t shorten(std::vector<TimedEvent>& events) {
    std::size_t shortened = 0;
    std::vector<std::int64_t> open;  // where the events around this one end, outermost first
    std::int32_t rank = -1;
    for (TimedEvent& event : events) {
        if (event.rank != rank) open.clear();
        rank = event.rank;
        while (!open.empty() && open.back() <= event.start) open.pop_back();
        if (!open.empty() && event.end > open.back()) {
            event.end = open.back();
            ++shortened;
        }
        open.push_back(event.end);
    }
    return shortened;
}

}  // namespace

Timeline::Timeline(const trace::Run& run) : run_(run), end_steps_(end_steps_of(run)), oddities_(run.parts.size()) {
    if (!has_events())
        throw usage_error(
            "{} has no events; lockstep train records those of sampled steps, the first and then every "
            "trace.events_every-th, unless that is 0 or trace.detail is \"off\", and imported runs have none",
            run.path);
}

bool Timeline::has_events() const {
    for (std::size_t i = 0; i < run_.parts.size(); ++i) {
        const auto events = run_.parts[i].file.read_events();
        if (std::any_of(events.begin(), events.end(), [&](const auto& event) { return event.step < end_steps_[i]; }))
            return true;
    }
    return false;
}

// The clock of each launch begins at its own start.
double Timeline::shift(std::size_t part) const {
    const double shift = run_.parts[part].file.header().start_time - run_.parts.front().file.header().start_time;
    return std::isfinite(shift) ? shift : 0;
}

std::vector<TimedEvent> Timeline::events(std::size_t part) {
    std::vector<TimedEvent> events;
    const double later = shift(part);
    Oddities oddities;
    for (const trace::EventRow& row : run_.parts[part].file.read_events()) {
        if (row.step >= end_steps_[part]) continue;  // made again by a later launch
        const auto start = nanoseconds(row.start + later), end = nanoseconds(row.end + later);
        if (start && end && *end >= *start)
            events.push_back({*start, *end, row.step, row.rank, row.region, row.bytes});
        else
            ++oddities.left_out;
    }
    // Parents before children: they are longer, or come first among the regions.
    std::sort(events.begin(), events.end(), [](const TimedEvent& a, const TimedEvent& b) {
        return std::tuple(a.rank, a.start, -a.end, a.region) < std::tuple(b.rank, b.start, -b.end, b.region);
    });
    oddities.shortened = shorten(events);
    oddities_[part] = oddities;
    return events;
}

std::optional<std::int64_t> Timeline::row_end(std::size_t part, std::size_t row) const {
    const trace::TraceFile& file = run_.parts[part].file;
    return nanoseconds(file.steps()[row].wall_time - file.header().start_time + shift(part));
}

void Timeline::visit_memory(std::size_t part,
                            const std::function<void(std::int64_t, std::size_t, const std::uint64_t*)>& take) const {
    const trace::TraceFile& file = run_.parts[part].file;
    file.visit_memory(run_.parts[part].rows, [&](std::size_t row, const std::uint64_t* memory) {
        const auto time = row_end(part, row);
        for (std::size_t rank = 0; time && rank < file.ranks(); ++rank) {
            const std::uint64_t* bytes = &memory[rank * 3];
            if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 0) take(*time, rank, bytes);
        }
    });
}

void Timeline::warn() const {
    Oddities all;
    for (const Oddities& part : oddities_) {
        all.left_out += part.left_out;
        all.shortened += part.shortened;
    }
    if (all.left_out > 0)
        log::warning("{}: left out {} event{} with an impossible time", run_.path, all.left_out, plural(all.left_out));
    if (all.shortened > 0)
        log::warning("{}: shortened {} event{} that extended beyond the end of the enclosing event", run_.path,
                     all.shortened, plural(all.shortened));
}

}  // namespace lockstep::analysis
