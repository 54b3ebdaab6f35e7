// The geometry of tensors spread over ranks: which elements of a range a rank holds, who sends which, and in which
// round. Pure functions, identical on every rank. Only checkpoint/ includes this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/layout.hpp"
#include "device/tensor.hpp"

namespace lockstep::checkpoint {

// A range of elements of a slice, in the slice's row-major order. The tensor is seen as rows of `row` elements (the
// slice's axis and later ones), of which the slice has columns [start, start + width).
struct SliceRange {
    std::int64_t row = 1, start = 0, width = 1;
    std::int64_t first = 0, count = 0;  // within the slice
    bool operator==(const SliceRange&) const = default;
};
// Normalized: equal sets of elements that are contiguous in the tensor compare equal.
SliceRange slice_range(const Shape& shape, int axis, std::int64_t offset, std::int64_t extent, std::int64_t first,
                       std::int64_t count);

// The element's position in the tensor. Positions ascend, so the part of a tensor range [a, b) held here is
// [elements_before(a), elements_before(b)).
inline std::int64_t element_of_tensor(const SliceRange& piece, std::int64_t element) {
    const std::int64_t of_slice = piece.first + element;
    return of_slice / piece.width * piece.row + piece.start + of_slice % piece.width;
}
// The number of its elements before this element of the tensor.
inline std::int64_t elements_before(const SliceRange& piece, std::int64_t element) {
    const std::int64_t columns = std::clamp<std::int64_t>(element % piece.row - piece.start, 0, piece.width);
    return std::clamp<std::int64_t>(element / piece.row * piece.width + columns - piece.first, 0, piece.count);
}
// The number of elements from this one on that are contiguous in the tensor, at most up to `last`.
inline std::int64_t run_length(const SliceRange& piece, std::int64_t element, std::int64_t last) {
    if (piece.width == piece.row) return last - element;
    return std::min(last - element, piece.width - (piece.first + element) % piece.width);
}

// All ranges held of one tensor, each once.
struct Holder {
    int rank = 0, entry = 0;  // entry: its index on that rank
    bool operator==(const Holder&) const = default;
};
// Holders of the same elements. On a grid, replicas are evenly spaced, so that a few runs stand for any number of
// ranks.
class Holders {
  public:
    void add(const Holder& holder);  // called in the order of ranks
    std::int64_t count() const { return count_; }
    Holder at(std::int64_t number) const;  // by rank
    // Calls take(entry) for each entry of the rank that holds them.
    template <class Take>
    void each_entry_of(int rank, Take&& take) const {
        for (const Run& run : runs_)
            if (run.has(rank)) take(run.first.entry);
    }
    template <class Take>
    void each(Take&& take) const {
        for (const Run& run : runs_)
            for (int number = 0; number < run.count; ++number) take(run.at(number));
    }

  private:
    struct Run {
        Holder first;
        int stride = 0, count = 1;
        Holder at(int number) const { return {first.rank + number * stride, first.entry}; }
        bool has(int rank) const {
            const int distance = rank - first.rank;
            return stride == 0 ? distance == 0 : distance >= 0 && distance % stride == 0 && distance / stride < count;
        }
    };
    std::vector<Run> runs_;
    std::int64_t count_ = 0;
};
struct Held {
    SliceRange piece;
    Holders holders;
};
class Spread {
  public:
    void add(const SliceRange& piece, const Holder& holder);  // called in the order of ranks
    // In the order of their first elements.
    const std::vector<Held>& all() const { return held_; }
    // Calls take(held) for those that may have some of the elements [first, last) of the tensor: from the first one at
    // or before which a piece ends after `first`, to the last that begins before `last`.
    template <class Take>
    void each_near(std::int64_t first, std::int64_t last, Take&& take) const {
        auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
        for (; at < held_.size() && element_of_tensor(held_[at].piece, 0) < last; ++at) take(held_[at]);
    }

  private:
    std::vector<Held> held_;
    std::vector<std::int64_t> ends_;  // the furthest end of a piece up to this one, so that they ascend
};

// Elements [first, first + count) of a tensor, which begin at `from` in an entry of a rank.
struct Segment {
    std::int64_t first = 0, count = 0;
    Holder holder;
    std::int64_t from = 0;
    bool operator==(const Segment&) const = default;
};
// Which holders the elements [first, last) are copied from for the rank `owner`: itself if it holds them, else one of
// the holders, varying by owner. Elements that nobody holds are omitted. In tensor order.
std::vector<Segment> sources(const Spread& spread, std::int64_t first, std::int64_t last, int owner);

// The part of a rank's share that is transferred in one round.
struct Span {
    std::size_t block = 0, place = 0;   // the block's index in the share; its tensor
    std::int64_t first = 0, count = 0;  // elements of the tensor
    int round = 0;
};
// Cuts a share into rounds of at most `most` elements.
std::vector<Span> cut_into_rounds(const std::vector<ChecksumBlock>& share, std::int64_t most);
// What a rank may receive at a time: 64 MiB.
constexpr std::int64_t elements_in_flight = (std::int64_t{64} << 20) / std::int64_t{sizeof(float)};
// Elements per round of each of `ranks` shares: about as many in all, up to 1,024 ranks.
std::int64_t elements_a_round(int ranks);
// The spans of one share in one round.
struct Spans {
    std::vector<Span>::const_iterator first, last;
    auto begin() const { return first; }
    auto end() const { return last; }
};
Spans spans_of_round(const std::vector<Span>& spans, int round);

}  // namespace lockstep::checkpoint
