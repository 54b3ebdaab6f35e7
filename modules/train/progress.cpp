#include "train/progress.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep::train {

void Progress::step(const StepLine& line) {
    const double samples_per_second = static_cast<double>(line.batch) / line.seconds;
    std::string text = fmt::format(
        "step {}/{} | samples {} | tokens {} | {:.1f} ms | learning rate {:.3e} | batch {} | loss {:.5f} | loss scale "
        "{:g} | gradient norm {:.4f} | zero gradients {} | skipped {}{} | not finite {} | {:.2f} samples/s | {:.0f} "
        "tokens/s | {:.3g} model, {:.3g} hardware TFLOP/s a rank",
        line.step, line.steps, with_commas(line.samples), with_commas(line.tokens), line.seconds * 1e3,
        line.learning_rate, line.batch, line.loss, line.loss_scale, line.gradient_norm,
        with_commas(line.zero_gradients), line.skipped, line.skipped_now ? " (this one)" : "", line.not_finite,
        samples_per_second, line.tokens_per_second, line.model_flops * 1e-12, line.hardware_flops * 1e-12);
    if (line.peak_flops > 0) text += fmt::format(" | MFU {:.2f} %", 100 * line.model_flops / line.peak_flops);
    log::info("{}", text);

    training_seconds_ += line.seconds;
    const std::int64_t done = line.step - first_step_;
    const double left = training_seconds_ / static_cast<double>(std::max<std::int64_t>(1, done)) *
                        static_cast<double>(line.steps - line.step);
    constexpr std::int64_t width = 30;
    const std::int64_t filled = width * line.step / std::max<std::int64_t>(1, line.steps);
    log::status_line(fmt::format("[{}{}] {} % | {} left", std::string(static_cast<std::size_t>(filled), '#'),
                                 std::string(static_cast<std::size_t>(width - filled), '.'),
                                 100 * line.step / std::max<std::int64_t>(1, line.steps), human_seconds(left)));
}

}  // namespace lockstep::train
