#include "layout/even_cuts.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep::layout {
namespace {

class Range {
  public:
    explicit Range(const std::vector<Stretch>& stretches) : stretches_(stretches) {
        for (const Stretch& stretch : stretches) {
            begins_.push_back(end_);
            end_ += stretch.count;
        }
    }
    std::int64_t end() const { return end_; }

    // The last place to cut at or before a position within the range, the first one at or behind it.
    std::int64_t before(std::int64_t position) const {
        if (position >= end_) return end_;
        const std::size_t i = at(position);
        return begins_[i] + (position - begins_[i]) / stretches_[i].unit * stretches_[i].unit;
    }
    std::int64_t behind(std::int64_t position) const {
        if (position >= end_) return end_;
        const std::int64_t cut = before(position);
        if (cut == position) return cut;
        const std::size_t i = at(position);
        return std::min(cut + stretches_[i].unit, begins_[i] + stretches_[i].count);
    }
    std::int64_t nearest(std::int64_t position) const {
        const std::int64_t low = before(position), high = behind(position);
        return high - position < position - low ? high : low;
    }
    // Whether so many parts, none larger than `largest`, cover the range.
    bool covered(std::int64_t parts, std::int64_t largest) const {
        std::int64_t position = 0;
        for (; parts > 0 && position < end_; --parts) position = before(position + largest);
        return position == end_;
    }

  private:
    std::size_t at(std::int64_t position) const {
        return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), position) - begins_.begin()) -
               1;
    }
    const std::vector<Stretch>& stretches_;
    std::vector<std::int64_t> begins_;
    std::int64_t end_ = 0;
};

}  // namespace

std::vector<std::int64_t> even_cuts(const std::vector<Stretch>& stretches, std::int64_t parts) {
    const Range range(stretches);
    const auto even = [&](std::int64_t part, std::int64_t unit) { return range.end() / unit * part / parts * unit; };
    std::vector<std::int64_t> cuts;
    if (stretches.size() == 1 && range.end() % stretches[0].unit == 0) {
        for (std::int64_t part = 0; part < parts; ++part) cuts.push_back(even(part, stretches[0].unit));
        cuts.push_back(range.end());
        return cuts;
    }
    std::int64_t largest = range.end();
    for (std::int64_t low = 0; low + 1 < largest;) {  // `low` is too small, `largest` is not
        const std::int64_t middle = low + (largest - low) / 2;
        (range.covered(parts, middle) ? largest : low) = middle;
    }
    // The earliest places from which the parts behind still reach the end.
    std::vector<std::int64_t> earliest(static_cast<std::size_t>(parts) + 1, range.end());
    for (auto part = static_cast<std::size_t>(parts); part-- > 0;)
        earliest[part] = range.behind(std::max<std::int64_t>(0, earliest[part + 1] - largest));
    cuts.push_back(0);
    for (std::int64_t part = 1; part <= parts; ++part) {
        const std::int64_t low = std::max(cuts.back(), earliest[static_cast<std::size_t>(part)]);
        cuts.push_back(std::clamp(range.nearest(even(part, 1)), low, range.before(cuts.back() + largest)));
    }
    return cuts;
}

}  // namespace lockstep::layout
