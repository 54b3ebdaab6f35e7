// Where a changed copy of a text differs from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::data::huggingface {

class TextChanges {
  public:
    static constexpr std::size_t inside = static_cast<std::size_t>(-1);

    // Bytes [begin, end) of the text became [copy_begin, copy_end) of the copy. In order.
    void add(std::size_t begin, std::size_t end, std::size_t copy_begin, std::size_t copy_end) {
        changes_.push_back({begin, end, copy_begin, copy_end});
    }
    void clear() { changes_.clear(); }

    // The position in the text of one in the copy, or `inside` a change.
    std::size_t original(std::size_t position) const {
        const auto behind = std::upper_bound(changes_.begin(), changes_.end(), position,
                                             [](std::size_t at, const Change& one) { return at < one.copy_begin; });
        if (behind == changes_.begin()) return position;
        const Change& last = *(behind - 1);
        if (position == last.copy_begin) return last.begin;
        return position < last.copy_end ? inside : last.end + (position - last.copy_end);
    }

  private:
    struct Change {
        std::size_t begin, end, copy_begin, copy_end;
    };
    std::vector<Change> changes_;
};

}  // namespace lockstep::data::huggingface
