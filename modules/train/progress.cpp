#include "train/progress.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep::train {

void Progress::step(const StepLine& line) {
    std::string text = fmt::format(
        "step {}/{} | samples {} | tokens {} | {:.1f} ms | {:.0f} tokens/s | {} | learning rate {:.3e} | batch {} | "
        "loss {:.5f} | "
        "gradient norm {:.4f}",
        line.step, line.steps, with_commas(line.samples), with_commas(line.tokens), line.seconds * 1e3,
        line.tokens_per_second, human_rate(line.flop_per_second, "FLOP"), line.learning_rate, line.batch, line.loss,
        line.gradient_norm);
    if (line.skipped > 0) text += fmt::format(" | skipped {}{}", line.skipped, line.skipped_now ? " (this one)" : "");
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
