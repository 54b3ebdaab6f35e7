// User-visible progress: one log line per step, and on terminals a line with progress and time left.
#pragma once

#include <cstdint>

#include "trace/records.hpp"

namespace lockstep::train {

struct ProgressOptions {
    std::int64_t first_step = 0, steps = 0;  // the step before this launch's first; of the whole schedule
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
