// What a person sees of a run: one log line per step, and on a terminal a line with progress and the time left.
#pragma once

#include <cstdint>

#include "trace/records.hpp"

namespace lockstep::train {

struct ProgressOptions {
    std::int64_t first_step = 0, steps = 0;  // this launch begins after; of the whole schedule
    int ranks = 1;
    double peak_flops = 0;  // FLOP/s of one rank's device; 0: unknown
};

class Progress {
  public:
    explicit Progress(const ProgressOptions& options) : options_(options) {}
    void step(const trace::StepNumbers& numbers);

  private:
    void log_line(const trace::StepNumbers& numbers) const;
    ProgressOptions options_;
    double training_seconds_ = 0;
};

}  // namespace lockstep::train
