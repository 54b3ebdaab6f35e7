// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "config/run_description.hpp"

namespace lockstep::optim {

// For step 1..steps. Linear warm-up from 0 to the peak at step `warmup`, then "cosine" or "linear" to final_lr at the
// last step, "constant", or "wsd": constant, then linear to final_lr over the last decay_steps (default: a fifth).
double learning_rate(const config::ScheduleSection& schedule, std::int64_t steps, std::int64_t step);

// The factor on the inner learning rate of a mixer with warm-up (TTT: base_lr_warmup / base_lr initially); linear, 1
// from step `warmup` on, always 1 for other mixers.
double inner_rate_factor(const config::ModelDescription& model, std::int64_t warmup, std::int64_t step);

}  // namespace lockstep::optim
