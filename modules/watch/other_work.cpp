#include "watch/other_work.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/clock.hpp"

namespace lockstep::watch {

std::optional<std::string> OtherWork::look() {
    constexpr double look_every_seconds = 10, most_a_second = 100;
    if (said_) return std::nullopt;
    const double now = seconds_now();
    if (since_ >= 0 && now - since_ < look_every_seconds) return std::nullopt;
    rusage usage{};
    if (::getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
    const double seconds = now - since_, rate = static_cast<double>(usage.ru_nivcsw - switches_) / seconds / threads_;
    const bool first = since_ < 0;
    since_ = now;
    switches_ = usage.ru_nivcsw;
    if (first || rate < most_a_second) return std::nullopt;
    said_ = true;
    return fmt::format(
        "other work shares this rank's cores: its threads were interrupted {:.0f} times a second; steps take longer, and "
        "their times vary",
        rate);
}

}  // namespace lockstep::watch
