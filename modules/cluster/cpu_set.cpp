#include "cluster/cpu_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.hpp"

namespace lockstep::cluster {
namespace {

constexpr int most_units = 1 << 16;  // more than any machine has; bounds memory

int take_number(std::string_view& text, std::string_view whole) {
    int number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || number < 0 || number >= most_units)
        throw usage_error("'{}' is not a list of processing units such as 0-3,8", whole);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

bool take(std::string_view& text, char letter) {
    if (text.empty() || text.front() != letter) return false;
    text.remove_prefix(1);
    return true;
}

}  // namespace

CpuSet::CpuSet(std::vector<int> units) : units_(std::move(units)) {
    std::sort(units_.begin(), units_.end());
    units_.erase(std::unique(units_.begin(), units_.end()), units_.end());
}

CpuSet CpuSet::parse(std::string_view text) {
    const std::string_view whole = text;
    std::vector<int> units;
    while (!text.empty()) {
        const int first = take_number(text, whole);
        const int last = take(text, '-') ? take_number(text, whole) : first;
        const int step = take(text, ':') ? take_number(text, whole) : 1;
        if (last < first || step < 1 || (!text.empty() && (!take(text, ',') || text.empty())))
            throw usage_error("'{}' is not a list of processing units such as 0-3,8", whole);
        for (int unit = first; unit <= last; unit += step) units.push_back(unit);
    }
    return CpuSet(std::move(units));
}

bool CpuSet::contains(int unit) const {
    return std::binary_search(units_.begin(), units_.end(), unit);
}

bool CpuSet::overlaps(const CpuSet& other) const {
    return !(*this & other).empty();
}

std::string CpuSet::text() const {
    constexpr std::size_t least_with_stride = 4;  // "0,4,8" is shorter than "0-8:4"
    std::string text;
    for (std::size_t i = 0; i < units_.size();) {
        std::size_t end = i + 1;
        const int step = end < units_.size() ? units_[end] - units_[i] : 1;
        while (end < units_.size() && units_[end] - units_[end - 1] == step) ++end;
        if (step > 1 && end - i < least_with_stride) end = i + 1;
        if (!text.empty()) text += ',';
        text += std::to_string(units_[i]);
        if (end - i > 1) text += fmt::format("-{}", units_[end - 1]);
        if (end - i > 1 && step > 1) text += fmt::format(":{}", step);
        i = end;
    }
    return text;
}

CpuSet operator|(const CpuSet& left, const CpuSet& right) {
    CpuSet result;
    std::set_union(left.units_.begin(), left.units_.end(), right.units_.begin(), right.units_.end(),
                   std::back_inserter(result.units_));
    return result;
}

CpuSet operator&(const CpuSet& left, const CpuSet& right) {
    CpuSet result;
    std::set_intersection(left.units_.begin(), left.units_.end(), right.units_.begin(), right.units_.end(),
                          std::back_inserter(result.units_));
    return result;
}

CpuSet operator-(const CpuSet& left, const CpuSet& right) {
    CpuSet result;
    std::set_difference(left.units_.begin(), left.units_.end(), right.units_.begin(), right.units_.end(),
                        std::back_inserter(result.units_));
    return result;
}

}  // namespace lockstep::cluster
