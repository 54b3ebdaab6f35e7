#include "trace/scalars.hpp"

namespace lockstep::trace {

std::vector<tensorboard::Scalar> step_scalars(const StepRecord& step) {
    return {{"train/loss", step.loss},
            {"train/learning_rate", step.learning_rate},
            {"train/gradient_norm", step.gradient_norm},
            {"train/batch", static_cast<double>(step.batch)},
            {"train/loss_scale", step.loss_scale},
            {"speed/seconds_per_step", step.seconds},
            {"speed/tokens_per_second", step.per_second(static_cast<double>(step.tokens))},
            {"speed/flop_per_second", step.per_second(step.model_flop)}};
}

std::vector<tensorboard::Scalar> validation_scalars(const ValidationRecord& validation) {
    std::vector<tensorboard::Scalar> scalars = {{"validation/loss", validation.loss}};
    if (validation.bits_per_byte > 0) scalars.push_back({"validation/bits_per_byte", validation.bits_per_byte});
    return scalars;
}

std::vector<tensorboard::Scalar> memory_scalars(std::uint64_t peak) {
    return {{"memory/peak_bytes", static_cast<double>(peak)}};
}

}  // namespace lockstep::trace
