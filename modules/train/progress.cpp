#include "train/progress.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep::train {

void Progress::log_line(const trace::StepNumbers& numbers) const {
    const double model_flops = numbers.per_second(numbers.model_flop) / options_.ranks,
                 hardware_flops = numbers.per_second(numbers.hardware_flop) / options_.ranks;
    std::string text = fmt::format(
        "step {}/{} | samples {} | tokens {} | {:.1f} ms | learning rate {:.3e} | batch {} | loss {:.5f} | loss scale "
        "{:g} | gradient norm {:.4f} | zero gradients {} | skipped {}{} | not finite {} | {:.2f} samples/s | {:.0f} "
        "tokens/s | {:.3g} model, {:.3g} hardware TFLOP/s per rank",
        numbers.step, options_.steps, with_commas(numbers.run_samples), with_commas(numbers.run_tokens),
        numbers.seconds * 1e3, numbers.learning_rate, numbers.batch, numbers.loss, numbers.loss_scale,
        numbers.gradient_norm, with_commas(numbers.zero_gradients), numbers.run_skipped,
        numbers.skipped != 0 ? " (this one)" : "", numbers.launch_not_finite,
        numbers.per_second(static_cast<double>(numbers.batch)), numbers.per_second(static_cast<double>(numbers.tokens)),
        model_flops * 1e-12, hardware_flops * 1e-12);
    if (options_.peak_flops > 0) text += fmt::format(" | MFU {:.2f} %", 100 * model_flops / options_.peak_flops);
    log::info("{}", text);
}

void Progress::step(const trace::StepNumbers& numbers) {
    log_line(numbers);
    const std::int64_t step = numbers.step, steps = std::max<std::int64_t>(1, options_.steps);
    const std::int64_t done = std::max<std::int64_t>(1, step - options_.first_step);
    training_seconds_ += numbers.seconds;
    const double left = training_seconds_ / static_cast<double>(done) * static_cast<double>(options_.steps - step);
    constexpr std::int64_t width = 30;
    const auto filled = static_cast<std::size_t>(width * step / steps);
    log::status_line(fmt::format("[{}{}] {} % | {} left", std::string(filled, '#'), std::string(width - filled, '.'),
                                 100 * step / steps, human_seconds(left)));
}

}  // namespace lockstep::train
