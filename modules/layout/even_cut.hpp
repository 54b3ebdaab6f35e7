// Cuts a row of work into consecutive pieces.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::layout {

// How many items, at least one, each piece takes so that the heaviest piece is lightest; of such cuts one with a small
// sum of squares, and of equal ones the one whose first pieces have more. `first` and `last` come on top of the outer
// pieces. At least one piece, and as many items as pieces.
std::vector<std::int64_t> cut_evenly(const std::vector<double>& items, std::int64_t pieces, double first, double last);

}  // namespace lockstep::layout
