// Where a step's numbers go: a row of the trace, a line of metrics.jsonl, a line of the log, status.json. Ranks slower
// than their peers are named here too.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/records.hpp"
#include "train/launch.hpp"
#include "train/progress.hpp"
#include "train/regions.hpp"
#include "watch/slow_ranks.hpp"

namespace lockstep::train {

class StepLog {
  public:
    // Collective. All of them outlive this object. peak_flops: of one rank's device.
    StepLog(const Launch& launch, trace::Tracer& tracer, const Regions& regions, double peak_flops);

    // Collective every so many steps; for steps that are timed exactly, before anything else joins their row of times.
    void compare_ranks(std::int64_t step);
    // Of a step whose `seconds` are the slowest rank's. Its row of the trace stays open: what the ranks do before the
    // next step begins belongs to it.
    void add(const trace::StepNumbers& numbers);
    // Writes the open row, if there is one, to the trace.
    void close_row();

  private:
    const Launch& launch_;
    trace::Tracer& tracer_;
    const Regions& regions_;
    Progress progress_;
    std::optional<watch::SlowRanks> slow_ranks_;  // with several ranks whose communication is timed
    std::optional<trace::StepNumbers> open_row_;
    double last_status_ = 0;
};

}  // namespace lockstep::train
