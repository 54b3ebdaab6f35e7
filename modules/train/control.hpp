// What ranks agree on at the end of each step, in one small all-reduce: whether to stop, to save or to flush the trace,
// whether a checkpoint is being written, and the slowest rank's time.
#pragma once

#include <cstdint>
#include <string>

#include "train/launch.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

// Why a run stops early; the largest code of all ranks wins.
enum StopCode : std::int64_t { go_on = 0, stop_at_step = 1, stop_for_time = 2, stop_file = 3, stop_for_signal = 100 };

// Of one rank, or the maximum over all.
struct Agreement {
    std::int64_t stop = go_on;                                    // a StopCode; stop_for_signal + signal number
    bool flush = false;                                           // the trace has rows to flush
    bool save = false;                                            // checkpoint.every_minutes have passed
    bool probe_links = false;                                     // watchdog.link_seconds have passed
    bool checkpoint_writing = false, checkpoint_pending = false;  // by a writer thread; begun and not committed
    bool local_writing = false, local_pending = false;            // the same of a local checkpoint
    double slowest_seconds = 0;                                   // of the step

    void add(const Agreement& later);  // of the same iteration; leaves slowest_seconds, which belongs to one step
};

class Control {
  public:
    // The arguments outlive this object.
    Control(const Launch& launch, trace::Tracer& tracer, const CommunicationRegions& regions)
        : launch_(launch), tracer_(tracer), regions_(regions) {}

    // Collective. Determines `own.stop`.
    Agreement agree(Agreement own);
    // What --stop-at requires after `step`; needs no agreement.
    std::int64_t stop_after(std::int64_t step) const;
    std::string reason(std::int64_t stop) const;

  private:
    std::int64_t requested_stop();

    const Launch& launch_;
    trace::Tracer& tracer_;
    CommunicationRegions regions_;
    double last_poll_ = 0;  // at the stop file
};

}  // namespace lockstep::train
