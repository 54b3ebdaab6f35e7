// The geometry of tensors that are spread over ranks: which elements a piece holds of a range of the tensor, which rank
// gives which, and in which round. Pure functions: every rank finds the same. Only checkpoint/ includes this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/layout.hpp"
#include "device/tensor.hpp"

namespace lockstep::checkpoint {

// A run of elements of a slice, in the slice's row-major order. The tensor is seen as rows of `row` elements (the
// slice's axis and those behind it), of which the slice has the columns [start, start + width).
struct Piece {
    std::int64_t row = 1, start = 0, width = 1;
    std::int64_t first = 0, count = 0;  // within the slice
    bool operator==(const Piece&) const = default;
};
// Pieces with the same elements in the same order come out equal where they are one run of the tensor.
Piece piece_of(const Shape& shape, int axis, std::int64_t offset, std::int64_t extent, std::int64_t first,
               std::int64_t count);

// Where the piece's element lies in the tensor. Elements of a piece are in the tensor's order, so that what it holds of
// a range [a, b) of the tensor is its range [elements_before(a), elements_before(b)).
inline std::int64_t element_of_tensor(const Piece& piece, std::int64_t element) {
    const std::int64_t of_slice = piece.first + element;
    return of_slice / piece.width * piece.row + piece.start + of_slice % piece.width;
}
// How many of the piece's elements lie before this element of the tensor.
inline std::int64_t elements_before(const Piece& piece, std::int64_t element) {
    const std::int64_t columns = std::clamp<std::int64_t>(element % piece.row - piece.start, 0, piece.width);
    return std::clamp<std::int64_t>(element / piece.row * piece.width + columns - piece.first, 0, piece.count);
}
// How many elements from this one on are neighbours in the tensor too, at most those before the piece's element `last`.
inline std::int64_t run_length(const Piece& piece, std::int64_t element, std::int64_t last) {
    if (piece.width == piece.row) return last - element;
    return std::min(last - element, piece.width - (piece.first + element) % piece.width);
}

// Everything that is held of one tensor, each piece once.
struct Holder {
    int rank = 0, entry = 0;  // the entry: its number on that rank
    bool operator==(const Holder&) const = default;
};
struct Held {
    Piece piece;
    std::vector<Holder> holders;  // in the order of ranks
};
using Spread = std::vector<Held>;
void add(Spread& spread, const Piece& piece, const Holder& holder);  // called in the order of ranks

// Elements [first, first + count) of a tensor, which lie from `from` on in an entry of a rank.
struct Segment {
    std::int64_t first = 0, count = 0;
    Holder holder;
    std::int64_t from = 0;
    bool operator==(const Segment&) const = default;
};
// Whose memory the elements [first, last) are copied from for the rank `owner`: its own where it holds them, else one
// of the holders', another for each owner. What nobody holds is left out. In the tensor's order.
std::vector<Segment> sources(const Spread& spread, std::int64_t first, std::int64_t last, int owner);

// A part of a rank's share of the file, as large as what goes in one round.
struct Span {
    std::size_t block = 0, place = 0;   // the block's number in the share; its tensor
    std::int64_t first = 0, count = 0;  // elements of the tensor
    int round = 0;
};
// Cuts a share into rounds of at most `most` elements.
std::vector<Span> cut_into_rounds(const std::vector<Block>& share, std::int64_t most);
// So many elements of each of `ranks` shares go in one round: together about 64 MiB.
std::int64_t elements_a_round(int ranks);
// Of one share, those of one round.
struct Spans {
    std::vector<Span>::const_iterator first, last;
    auto begin() const { return first; }
    auto end() const { return last; }
};
Spans spans_of_round(const std::vector<Span>& spans, int round);

}  // namespace lockstep::checkpoint
