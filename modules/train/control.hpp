// What the ranks agree on at the end of each step, in one small all-reduce: whether to stop, to save, to flush the
// trace, whether a checkpoint is still being written, and the slowest rank's time.
#pragma once

#include <cstdint>
#include <string>

#include "train/launch.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

// Why a run stops before its schedule ends; the largest of the ranks' codes wins.
enum StopCode : std::int64_t { go_on = 0, stop_at_step = 1, stop_for_time = 2, stop_file = 3, stop_for_signal = 100 };

// Of one rank, or of all: then each is the largest of the ranks'.
struct Agreement {
    std::int64_t stop = go_on;                                    // a StopCode; stop_for_signal + the signal's number
    bool flush = false;                                           // the trace has rows that should reach the disk
    bool save = false;                                            // checkpoint.every_minutes have passed
    bool checkpoint_writing = false, checkpoint_pending = false;  // by a writer thread; begun and not committed
    double slowest_seconds = 0;                                   // of the step

    void add(const Agreement& later);  // of the same iteration; slowest_seconds belongs to one step and is left
};

class Control {
  public:
    // All of them outlive this object.
    Control(const Launch& launch, trace::Tracer& tracer, const CommunicationRegions& regions)
        : launch_(launch), tracer_(tracer), regions_(regions) {}

    // Collective. `own.stop` is found here.
    Agreement agree(Agreement own);
    // What --stop-at demands after `step`; needs no agreement.
    std::int64_t stop_after(std::int64_t step) const;
    std::string reason(std::int64_t stop) const;

  private:
    std::int64_t requested_stop();

    const Launch& launch_;
    trace::Tracer& tracer_;
    CommunicationRegions regions_;
    double last_look_ = 0;  // for the stop file
};

}  // namespace lockstep::train
