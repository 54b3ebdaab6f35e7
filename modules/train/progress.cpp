#include "train/progress.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep::train {
namespace {

constexpr double line_every_seconds = 5;
constexpr std::size_t widest = 91;

}  // namespace

double Progress::seconds_left(std::int64_t step) const {
    const std::int64_t done = std::max<std::int64_t>(1, step - options_.first_step);
    return training_seconds_ / static_cast<double>(done) * static_cast<double>(options_.steps - step);
}

std::string Progress::line(const trace::StepNumbers& numbers) const {
    const double seconds = since_.seconds, rate = seconds > 0 ? static_cast<double>(since_.tokens) / seconds : 0;
    const double flops = seconds > 0 ? since_.model_flop / seconds / options_.ranks : 0;
    struct Part {
        std::string text;
        int priority;  // the lowest goes first where the line is too wide
    };
    std::vector<Part> parts = {
        {fmt::format("step {}/{}", numbers.step, options_.steps), 9},
        {fmt::format("loss {:.4f}", numbers.loss), 9},
        {fmt::format("norm {:.3g}", numbers.gradient_norm), 3},
        {fmt::format("lr {:.2e}", numbers.learning_rate), 1},
        {fmt::format("{:.1f} ms", 1e3 * seconds / static_cast<double>(std::max<std::int64_t>(1, steps_since_))), 9},
        {human_rate(rate, "tok"), 8}};
    if (options_.peak_flops > 0) parts.push_back({fmt::format("MFU {:.1f} %", 100 * flops / options_.peak_flops), 2});
    if (numbers.step < options_.steps) parts.push_back({human_seconds(seconds_left(numbers.step)) + " left", 8});
    const auto joined = [&] {
        std::string text;
        for (const Part& part : parts) text += (text.empty() ? "" : "  ") + part.text;
        return text;
    };
    std::string text = joined();
    for (; text.size() > widest && parts.size() > 3; text = joined())
        parts.erase(std::min_element(parts.begin(), parts.end(),
                                     [](const Part& a, const Part& b) { return a.priority < b.priority; }));
    return text;
}

void Progress::log_changes(const trace::StepNumbers& numbers) {
    if (before_ && numbers.batch != before_->batch)
        log::info("step {}: the batch is {} sequences from here on", numbers.step, with_commas(numbers.batch));
    if (numbers.skipped != 0)
        log::info("step {} skipped: loss or gradient not finite; {} skipped so far", numbers.step, numbers.run_skipped);
    if (before_ && numbers.loss_scale != before_->loss_scale)
        log::info("step {}: the loss scale is {:g} from here on", numbers.step, numbers.loss_scale);
    before_ = numbers;
}

bool Progress::due(std::int64_t step) const {
    if (step == options_.first_step + 1 || step >= options_.steps) return true;
    return options_.every > 0 ? step % options_.every == 0 : seconds_now() - logged_ >= line_every_seconds;
}

void Progress::log_line() {
    log::info("{}", line(*before_));
    logged_ = seconds_now();
    since_ = {};
    steps_since_ = 0;
}

void Progress::finish() {
    if (steps_since_ > 0) log_line();
}

void Progress::step(const trace::StepNumbers& numbers) {
    training_seconds_ += numbers.seconds;
    since_.seconds += numbers.seconds;
    since_.tokens += numbers.tokens;
    since_.model_flop += numbers.model_flop;
    ++steps_since_;
    log_changes(numbers);
    if (due(numbers.step)) log_line();
    const std::int64_t step = numbers.step, steps = std::max<std::int64_t>(1, options_.steps);
    constexpr std::int64_t width = 30;
    const auto filled = static_cast<std::size_t>(width * step / steps);
    log::status_line(fmt::format("[{}{}] {} % | {} left", std::string(filled, '#'), std::string(width - filled, '.'),
                                 100 * step / steps, human_seconds(seconds_left(step))));
}

}  // namespace lockstep::train
