#include "base/progress_line.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"

namespace lockstep {

ProgressLine::ProgressLine(std::string title) : title_(std::move(title)), begun_(seconds_now()), shown_(begun_) {}

ProgressLine::~ProgressLine() {
    log::status_line("");
}

void ProgressLine::show(std::int64_t done, std::int64_t all) {
    const bool terminal = log::on_terminal();
    const double now = seconds_now();
    if (done == 0 || now - shown_ < (terminal ? 0.25 : 10)) return;
    shown_ = now;
    const double left = (now - begun_) / static_cast<double>(done) * static_cast<double>(all - done);
    const std::string text = fmt::format("{}: {} %, {} left", title_, 100 * done / all, human_seconds(left));
    if (terminal)
        log::status_line(text);
    else
        log::info("{}", text);
}

}  // namespace lockstep
