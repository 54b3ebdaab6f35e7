// What an access of a warp costs the memories.
#pragma once

#include "ptx/state.hpp"

namespace lockstep::ptx {

// Adds shared_passes, or global_sectors and global_bytes. `bytes`: of a lane.
void count_access(Counts& counts, const std::uint64_t (&addresses)[lane_count], std::uint32_t mask, std::uint32_t bytes,
                  bool shared);

// Fills in what is known by instruction from how often each was executed.
void count_instructions(Counts& counts, const Launch& launch);

}  // namespace lockstep::ptx
