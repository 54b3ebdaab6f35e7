// How a range is divided among replicas where it may not be cut anywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::layout {

// Part of a range that may be cut at multiples of `unit` from its beginning, and at its ends.
struct Stretch {
    std::int64_t count = 0, unit = 1;
};

// The positions 0 = c[0] <= c[1] <= … <= c[parts], the end of the range, at which neighbouring stretches are cut so
// that the largest part is as small as can be and every cut as near to the even one as that allows. Parts may be empty.
std::vector<std::int64_t> even_cuts(const std::vector<Stretch>& stretches, std::int64_t parts);

}  // namespace lockstep::layout
