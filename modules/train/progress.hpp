// What a person sees of a run: a log line a step, and on a terminal a line with progress and the time left.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::train {

struct StepLine {
    std::int64_t step = 0, steps = 0, samples = 0, tokens = 0, batch = 0;  // samples and tokens so far
    double seconds = 0, tokens_per_second = 0, learning_rate = 0, loss = 0, loss_scale = 1, gradient_norm = 0;
    double model_flops = 0, hardware_flops = 0, peak_flops = 0;  // a second, of one rank
    std::int64_t zero_gradients = 0;
    std::int64_t skipped = 0, not_finite = 0;  // steps skipped so far, losses that were not finite in this launch
    bool skipped_now = false;
};

class Progress {
  public:
    explicit Progress(std::int64_t first_step) : first_step_(first_step) {}
    void step(const StepLine& line);

  private:
    std::int64_t first_step_;
    double training_seconds_ = 0;
};

}  // namespace lockstep::train
