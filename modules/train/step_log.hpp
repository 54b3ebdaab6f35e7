// Writes a step's numbers to the trace, metrics.jsonl, TensorBoard's event file, the log and status.json, and a
// validation's to the first three. Also reports slow ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "tensorboard/event_file.hpp"
#include "trace/records.hpp"
#include "train/evaluation.hpp"
#include "train/launch.hpp"
#include "train/progress.hpp"
#include "train/regions.hpp"
#include "train/step_counters.hpp"
#include "watch/other_work.hpp"
#include "watch/slow_ranks.hpp"

namespace lockstep::train {

class StepLog {
  public:
    // Collective. The arguments outlive this object. peak_flops: of one rank's device.
    StepLog(const Launch& launch, trace::Tracer& tracer, const Regions& regions, double peak_flops);

    // Periodically collective; for exactly timed steps, before anything else joins their row.
    void compare_ranks(std::int64_t step);
    // Collective. For a step whose `seconds` are the slowest rank's; what the machines count is filled in. Its trace
    // row stays open for what the ranks do before the next step.
    void add(trace::StepNumbers numbers);
    // Of the step whose row is open.
    void add_validation(const Evaluation& evaluation);
    // The log line of the last step, where it has none yet.
    void finish();
    // Writes the open row, if any, to the trace.
    void close_row();

  private:
    const Launch& launch_;
    trace::Tracer& tracer_;
    const Regions& regions_;
    Progress progress_;
    std::optional<watch::SlowRanks> slow_ranks_;         // with several ranks and timed communication
    std::optional<tensorboard::EventFile> tensorboard_;  // on rank 0, where log.tensorboard is set
    std::optional<trace::StepNumbers> open_row_;
    watch::OtherWork other_work_;
    StepCounters counters_;
    double last_status_ = 0;
};

}  // namespace lockstep::train
