// What a run did at which time, for exports that show it on an axis of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trace/reader.hpp"

namespace lockstep::analysis {

// A stretch of a region, in nanoseconds since the clock zero of the run's first launch. A child lies within its parent.
struct TimedEvent {
    std::int64_t start = 0, end = 0, step = 0;
    std::int32_t rank = 0, region = 0;
    std::uint64_t bytes = 0;  // communicated within it
};

// The events of a run's parts, and memory at the end of each row. Holds the events of one part at a time. Steps that
// a later launch repeated are left out.
class Timeline {
  public:
    explicit Timeline(const trace::Run& run);  // a run without events is a usage error
    const trace::Run& run() const { return run_; }

    // Of one part, by rank, start and depth. What reaches beyond the event around it is shortened.
    std::vector<TimedEvent> events(std::size_t part);
    // Calls `take(time, rank, allocated, reserved and peak)` for each row and each rank that measured any, a few MiB in
    // memory at once.
    void visit_memory(std::size_t part,
                      const std::function<void(std::int64_t, std::size_t, const std::uint64_t*)>& take) const;
    // The end of a row; nothing where it is no possible time.
    std::optional<std::int64_t> row_end(std::size_t part, std::size_t row) const;

    // Logs what the parts read so far had that cannot be shown as it is.
    void warn() const;

  private:
    struct Oddities {
        std::size_t left_out = 0, shortened = 0;
    };
    bool has_events() const;
    double shift(std::size_t part) const;

    const trace::Run& run_;
    std::vector<std::int64_t> end_steps_;  // of each part: the first step that a later part holds
    std::vector<Oddities> oddities_;       // of each part
};

}  // namespace lockstep::analysis
