#include "trace/region_clock.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::trace {

bool RegionClock::on_path(RegionId ancestor, RegionId region) const {
    while (region > ancestor) region = parents_[static_cast<std::size_t>(region)];
    return region == ancestor;
}

// `region` is not a child of the innermost open one. Open regions off its path are paused (validation pauses epoch;
// communication pauses backward), so that siblings never count the same second twice; ancestors not yet open are
// entered with it.
void RegionClock::begin_elsewhere(RegionId region, double now, Call call) {
    std::uint32_t paused = 0;
    RegionId open_ancestor = -1;
    for (std::size_t i = 0; i < frames_.size(); ++i) {
        Frame& frame = frames_[i];
        if (frame.paused_now) continue;
        LOCKSTEP_ASSERT(frame.region != region);  // a region cannot be open twice
        if (on_path(frame.region, region)) {
            open_ancestor = frame.region;
            continue;
        }
        account(frame, now);
        frame.paused_now = true;
        paused_frames_.push_back(i);
        ++paused;
    }
    std::vector<RegionId> path;
    for (RegionId above = parents_[static_cast<std::size_t>(region)]; above != open_ancestor;
         above = parents_[static_cast<std::size_t>(above)])
        path.push_back(above);
    for (auto above = path.rbegin(); above != path.rend(); ++above) enter(*above, now, Call::begins);
    enter(region, now, call);
    frames_.back().entered = static_cast<std::uint32_t>(path.size());
    frames_.back().paused = paused;
}

void RegionClock::leave_elsewhere(const Frame& left, double now) {
    for (std::uint32_t i = 0; i < left.entered; ++i) {
        account(frames_.back(), now);
        frames_.pop_back();
    }
    for (std::uint32_t i = 0; i < left.paused; ++i) {
        Frame& frame = frames_[paused_frames_.back()];
        paused_frames_.pop_back();
        frame.paused_now = false;
        frame.start = now;
        frame.bytes = communicated();
    }
}

void RegionClock::take_row(std::vector<double>& times, std::vector<std::uint32_t>& calls) {
    const double now = seconds_now();
    for (Frame& frame : frames_)
        if (!frame.paused_now) account(frame, now);
    times.insert(times.end(), times_.begin(), times_.end());
    calls.insert(calls.end(), calls_.begin(), calls_.end());
    std::fill(times_.begin(), times_.end(), 0.0);
    std::fill(calls_.begin(), calls_.end(), 0u);
}

double RegionClock::seconds_of(RegionId region) const {
    double seconds = times_[static_cast<std::size_t>(region)];
    for (const Frame& frame : frames_)
        if (frame.region == region && !frame.paused_now) seconds += seconds_now() - frame.start;
    return seconds;
}

std::uint64_t RegionClock::calls_in_row() const {
    return std::accumulate(calls_.begin(), calls_.end(), std::uint64_t{0});
}

}  // namespace lockstep::trace
