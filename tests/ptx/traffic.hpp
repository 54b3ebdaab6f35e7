// What an access of a warp costs the memories.
#pragma once

#include "ptx/state.hpp"

namespace lockstep::ptx {

// `bytes`: of a lane.
void count_shared_access(Counts& counts, const std::uint64_t (&addresses)[lane_count], std::uint32_t mask,
                         std::uint32_t bytes);
void count_global_access(Launch& launch, const std::uint64_t (&addresses)[lane_count], std::uint32_t mask,
                         std::uint32_t bytes, bool writes);

// Fills in what is known by instruction from how often each was executed.
void count_instructions(Counts& counts, const Launch& launch);

}  // namespace lockstep::ptx
