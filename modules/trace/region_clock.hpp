// The tracer's stopwatch: nested regions of one rank, inclusive times and calls since the last row.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cluster/flight_recorder.hpp"
#include "trace/tracer.hpp"

namespace lockstep::trace {

// An uninterrupted span of a region, on this rank's clock.
struct Span {
    std::int64_t step = 0;
    RegionId region = -1;
    std::int32_t unused = 0;
    double start = 0, end = 0;
    std::uint64_t bytes = 0;  // communicated within it
};

class RegionClock {
  public:
    RegionId add(RegionId parent) {
        parents_.push_back(parent);
        times_.push_back(0);
        calls_.push_back(0);
        return static_cast<RegionId>(parents_.size()) - 1;
    }
    std::size_t regions() const { return parents_.size(); }
    RegionId running() const { return running_; }  // the innermost open one; -1: none

    void begin(RegionId region, Call call = Call::begins) {
        LOCKSTEP_ASSERT(static_cast<std::size_t>(region) < parents_.size());
        const double now = seconds_now();
        if (parents_[static_cast<std::size_t>(region)] != running_) return begin_elsewhere(region, now, call);
        enter(region, now, call);
    }
    void end(RegionId region) {
        LOCKSTEP_ASSERT(region == running_ && region >= 0);  // regions end in reverse order
        const double now = seconds_now();
        const Frame frame = frames_.back();
        account(frames_.back(), now);
        frames_.pop_back();
        if (frame.entered > 0 || frame.paused > 0) leave_elsewhere(frame, now);
        running_ = frames_.empty() ? -1 : frames_.back().region;
    }

    // Accounts open regions up to now, returns the row and starts the next one.
    void take_row(std::vector<double>& times, std::vector<std::uint32_t>& calls);
    double seconds_of(RegionId region) const;
    std::uint64_t calls_in_row() const;

    void record_spans(bool wanted) { recording_ = wanted; }
    // Since the last call; `step` is not set. At most `most_spans` are kept between calls.
    static constexpr std::size_t most_spans = 1u << 16;
    std::vector<Span> take_spans() { return std::exchange(spans_, {}); }

  private:
    struct Frame {
        RegionId region = -1;
        bool paused_now = false;
        std::uint32_t entered = 0;  // ancestors entered with it
        std::uint32_t paused = 0;   // frames paused while it is open
        double start = 0;
        std::uint64_t bytes = 0;  // communicated before
    };
    void enter(RegionId region, double now, Call call) {
        frames_.push_back({region, false, 0, 0, now, communicated()});
        if (call == Call::begins) ++calls_[static_cast<std::size_t>(region)];
        running_ = region;
    }
    void account(Frame& frame, double now) {
        times_[static_cast<std::size_t>(frame.region)] += now - frame.start;
        const std::uint64_t bytes = communicated();
        if (recording_ && spans_.size() < most_spans)
            spans_.push_back({0, frame.region, 0, frame.start, now, bytes - frame.bytes});
        frame.start = now;
        frame.bytes = bytes;
    }
    static std::uint64_t communicated() { return cluster::flight_recorder().bytes(); }
    bool on_path(RegionId ancestor, RegionId region) const;
    void begin_elsewhere(RegionId region, double now, Call call);
    void leave_elsewhere(const Frame& left, double now);

    std::vector<RegionId> parents_;
    std::vector<double> times_;
    std::vector<std::uint32_t> calls_;
    std::vector<Frame> frames_;
    std::vector<std::size_t> paused_frames_;
    std::vector<Span> spans_;
    RegionId running_ = -1;
    bool recording_ = false;
};

}  // namespace lockstep::trace
