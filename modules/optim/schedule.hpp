// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "config/run_description.hpp"

namespace lockstep::optim {

// Of step 1..steps. Warm-up: from 0 linearly, peak at step `warmup`. Then "cosine" or "linear" to final_lr at the last
// step, "constant", or "wsd": constant, and linear to final_lr over the last decay_steps (a fifth when not given).
double learning_rate(const config::ScheduleSection& schedule, std::int64_t steps, std::int64_t step);

// The factor on the inner learning rate of a mixer that warms up (TTT: base_lr_warmup / base_lr at first); linear, 1
// from step `warmup` on, 1 throughout for other mixers.
double inner_rate_factor(const config::ModelDescription& model, std::int64_t warmup, std::int64_t step);

}  // namespace lockstep::optim
