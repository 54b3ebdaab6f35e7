// User-visible progress: log lines of steps, and on terminals a line with progress and time left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/records.hpp"

namespace lockstep::train {

struct ProgressOptions {
    std::int64_t first_step = 0, steps = 0;  // the step before this launch's first; of the whole schedule
    int ranks = 1;
    double peak_flops = 0;   // FLOP/s of one rank's device; 0: unknown
    std::int64_t every = 0;  // steps between lines; 0: a line about every 5 s. The first and the last step have one.
};

class Progress {
  public:
    explicit Progress(const ProgressOptions& options) : options_(options) {}
    // Logs what changed (batch, loss scale) or went wrong (a skipped step) at once, and the step where a line is due.
    void step(const trace::StepNumbers& numbers);
    // The last step's line, where it has none.
    void finish();

  private:
    // The line of a step: its loss, gradient norm and learning rate; time and rates are means since the line before. At
    // most 91 characters, 100 with the time in front: what does not fit is left out, lr and MFU first.
    std::string line(const trace::StepNumbers& numbers) const;
    void log_changes(const trace::StepNumbers& numbers);
    void log_line();
    bool due(std::int64_t step) const;
    double seconds_left(std::int64_t step) const;

    ProgressOptions options_;
    double training_seconds_ = 0;
    double logged_ = 0;         // when the last line was, seconds_now()
    trace::StepNumbers since_;  // sums since the last line: seconds, tokens, model_flop
    std::int64_t steps_since_ = 0;
    std::optional<trace::StepNumbers> before_;  // the step before
};

}  // namespace lockstep::train
