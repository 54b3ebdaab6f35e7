// Human-readable numbers and names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string with_commas(std::int64_t number);                      // 124,298,064
std::string human_bytes(double bytes);                             // 1.50 GiB
std::string human_seconds(double seconds);                         // 12.3 s, 4 min 05 s, 3 h 20 min
std::string human_rate(double per_second, std::string_view unit);  // 12.3 GFLOP/s
// The known name closest to `name` by edit distance, or "" if none is close.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// "a, b and c" with `word` before the last.
std::string joined(const std::vector<std::string>& items, const std::string& word);

}  // namespace lockstep
