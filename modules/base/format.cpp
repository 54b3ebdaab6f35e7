#include "base/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace lockstep {

std::string with_commas(std::int64_t number) {
    std::string digits = std::to_string(number);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return digits;
}

std::string human_bytes(double bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    std::size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < units.size()) bytes /= 1024, ++unit;
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, units[unit]);
}

std::string human_seconds(double seconds) {
    if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
    if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
    if (seconds < 60) return fmt::format("{:.1f} s", seconds);
    const auto whole = static_cast<std::int64_t>(seconds);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string human_rate(double per_second, std::string_view unit) {
    constexpr std::array prefixes = {"", "k", "M", "G", "T", "P", "E"};
    std::size_t prefix = 0;
    while (per_second >= 1000 && prefix + 1 < prefixes.size()) per_second /= 1000, ++prefix;
    return fmt::format("{:.1f} {}{}/s", per_second, prefixes[prefix], unit);
}

namespace {

// Letters to change, add, leave out or swap with the next one.
std::size_t edit_distance(std::string_view from, std::string_view to) {
    std::vector<std::size_t> row(to.size() + 1), before, before_that;
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < from.size(); ++i) {
        before_that = std::exchange(before, row);
        row[0] = i + 1;
        for (std::size_t j = 0; j < to.size(); ++j) {
            const std::size_t substituted = before[j] + (from[i] == to[j] ? 0 : 1);
            row[j + 1] = std::min({substituted, row[j] + 1, before[j + 1] + 1});
            const bool swapped = i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j];
            if (swapped) row[j + 1] = std::min(row[j + 1], before_that[j - 1] + 1);
        }
    }
    return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(1, (name.size() + 1) / 3);
    for (const std::string& candidate : known) {
        if (name.size() > 2 && candidate.starts_with(name)) return candidate;
        const std::size_t distance = edit_distance(name, candidate);
        if (distance <= best_distance && (best.empty() || distance < best_distance)) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string joined(const std::vector<std::string>& items, const std::string& word) {
    std::string text;
    for (std::size_t i = 0; i < items.size(); ++i)
        text += (i == 0 ? "" : i + 1 == items.size() ? " " + word + " " : ", ") + items[i];
    return text;
}

}  // namespace lockstep
