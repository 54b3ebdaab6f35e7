#include "base/clock.hpp"

#include <array>
#include <ctime>

namespace lockstep {

std::string calendar_time(double wall_seconds) {
    const auto whole = static_cast<std::time_t>(wall_seconds);
    std::tm parts{};
    gmtime_r(&whole, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

std::string utc_now() {
    return calendar_time(wall_seconds());
}

}  // namespace lockstep
