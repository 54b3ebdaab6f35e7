// Clocks. seconds_now() is monotonic with an arbitrary origin; wall_seconds() counts from 1970.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Seconds since 1970 as UTC.
std::string calendar_time(double wall_seconds);
std::string utc_now();  // "2026-01-31T12:00:00Z"

}  // namespace lockstep
