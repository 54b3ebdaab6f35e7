#include "cluster/rank_list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/format.hpp"

namespace lockstep::cluster {
namespace {

constexpr std::size_t most_ranks = std::size_t{1} << 17;  // as many as a trace can have

// Consumes a leading number; false if there is none.
bool take_number(std::string_view& text, int& number) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}
bool take(std::string_view& text, char letter) {
    if (text.empty() || text.front() != letter) return false;
    text.remove_prefix(1);
    return true;
}

}  // namespace

std::string rank_list_text(const std::vector<int>& ranks) {
    std::string text;
    for (std::size_t first = 0; first < ranks.size();) {
        std::size_t last = first;
        const int step = first + 1 < ranks.size() ? ranks[first + 1] - ranks[first] : 1;
        while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) ++last;
        if (last == first + 1 && step != 1) last = first;  // two apart are not a range
        if (!text.empty()) text += ',';
        text += std::to_string(ranks[first]);
        if (last > first) text += fmt::format("-{}", ranks[last]);
        if (last > first && step != 1) text += fmt::format(":{}", step);
        first = last + 1;
    }
    return text;
}

std::string short_rank_list_text(const std::vector<int>& ranks) {
    constexpr std::size_t most = 80;
    std::string text = rank_list_text(ranks);
    const std::size_t cut = text.find(',', most);
    if (cut == std::string::npos) return text;
    return fmt::format("{},... ({} in all)", text.substr(0, cut), with_commas(static_cast<std::int64_t>(ranks.size())));
}

std::vector<int> rank_list_from(const std::string& text) {
    std::vector<int> ranks;
    std::string_view rest = text;
    while (!rest.empty()) {
        int first = 0, last = 0, step = 1;
        if (!take_number(rest, first)) return {};
        last = first;
        if (take(rest, '-') && !take_number(rest, last)) return {};
        if (take(rest, ':') && !take_number(rest, step)) return {};
        if (step < 1 || last < first || (!rest.empty() && !take(rest, ','))) return {};
        for (std::int64_t rank = first; rank <= last; rank += step) {
            if (ranks.size() == most_ranks) return {};
            ranks.push_back(static_cast<int>(rank));
        }
    }
    return ranks;
}

}  // namespace lockstep::cluster
