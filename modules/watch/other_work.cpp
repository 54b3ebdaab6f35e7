#include "watch/other_work.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/clock.hpp"

namespace lockstep::watch {

bool OtherWork::due(double now) const {
    constexpr double look_every_seconds = 10;
    return !said_ && (since_ < 0 || now - since_ >= look_every_seconds);
}

std::optional<std::string> OtherWork::look() {
    const double now = seconds_now();
    rusage usage{};
    if (!due(now) || ::getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
    return look(now, usage.ru_nivcsw);
}

std::optional<std::string> OtherWork::look(double now, long switches) {
    constexpr double most_a_second = 100;
    if (!due(now)) return std::nullopt;
    const bool first = since_ < 0;
    const double rate = static_cast<double>(switches - switches_) / (now - since_) / threads_;
    since_ = now;
    switches_ = switches;
    if (first || rate < most_a_second) return std::nullopt;
    said_ = true;
    return fmt::format(
        "other work shares this rank's cores: its threads were interrupted {:.0f} times a second; steps take longer "
        "and step times vary",
        rate);
}

}  // namespace lockstep::watch
