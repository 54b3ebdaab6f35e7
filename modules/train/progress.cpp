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

// "8s", "13m", "1h02m", "5d03h": at most six characters for a month.
std::string short_duration(double seconds) {
    const auto whole = static_cast<std::int64_t>(seconds);
    if (whole < 60) return fmt::format("{}s", whole);
    if (whole < 3600) return fmt::format("{}m", whole / 60);
    if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
    return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string short_rate(double tokens) {
    if (tokens < 1e4) return fmt::format("{:.0f} tok/s", tokens);
    return tokens < 1e7 ? fmt::format("{:.0f}k tok/s", tokens * 1e-3) : fmt::format("{:.0f}M tok/s", tokens * 1e-6);
}

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
        {fmt::format("norm {:.2g}", numbers.gradient_norm), 3},
        {fmt::format("lr {:.1e}", numbers.learning_rate), 1},
        {fmt::format("{:.1f} ms", 1e3 * seconds / static_cast<double>(std::max<std::int64_t>(1, steps_since_))), 9},
        {short_rate(rate), 8}};
    if (options_.peak_flops > 0) parts.push_back({fmt::format("MFU {:.0f} %", 100 * flops / options_.peak_flops), 2});
    if (numbers.step < options_.steps) parts.push_back({short_duration(seconds_left(numbers.step)) + " left", 8});
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
        log::info("step {}: the batch is now {} sequences", numbers.step, with_commas(numbers.batch));
    if (numbers.skipped != 0)
        log::info("step {} skipped: loss or gradient not finite; {} skipped so far", numbers.step, numbers.run_skipped);
    if (before_ && numbers.loss_scale != before_->loss_scale)
        log::info("step {}: the loss scale is now {:g}", numbers.step, numbers.loss_scale);
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
