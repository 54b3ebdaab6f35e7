// Pieces of the flat tensors, divided by parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/parameters.hpp"

namespace lockstep::optim {

// A piece's part of one parameter. Elements are those of the rank's slice, in row-major order.
struct ParameterRange {
    std::size_t parameter = 0;          // index in the layout
    std::size_t piece = 0;              // index of the piece
    std::int64_t begin = 0;             // elements of the piece before it
    std::int64_t first = 0, count = 0;  // elements [first, first + count) of the slice
    std::int64_t padding = 0;           // elements of padding behind it, within the piece
};

// In the order of the pieces, which must be multiples of the layout's alignment.
std::vector<ParameterRange> ranges_of(const model::ParameterLayout& layout, const std::vector<model::Piece>& pieces);

}  // namespace lockstep::optim
