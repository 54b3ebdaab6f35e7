// What loads, stores and ldmatrix have in common.
#pragma once

#include "ptx/state.hpp"

namespace lockstep::ptx {

using Addresses = std::uint64_t[lane_count];

void find_addresses(Lanes& lanes, Slot base, std::uint32_t base_bytes, std::int64_t offset, Addresses& addresses);

// The lanes whose access is aligned and within memory, and whether all are at one address.
struct Reach {
    std::uint32_t lanes = 0;
    bool uniform = false;
    Region* region = nullptr;     // that of all, or nullptr
    Region* regions[lane_count];  // of each of `lanes` where there is not one for all

    Region* of(int lane) const { return region != nullptr ? region : regions[lane]; }
};
// Of those in `mask`, which is not empty; the others are findings. Of an access's bytes the first `used` must be there.
void reach(Lanes& lanes, const Addresses& addresses, std::uint32_t mask, std::uint32_t bytes, std::uint32_t used,
           bool shared, Reach& result);

}  // namespace lockstep::ptx
