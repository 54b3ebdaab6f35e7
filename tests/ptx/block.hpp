// A block: its warps take turns, and meet at barriers.
#pragma once

#include "ptx/state.hpp"

namespace lockstep::ptx {

// Runs the launch's block that is number `order` in its order to its end. Its warps are made.
void run_block(Launch& launch, BlockState& block, std::uint64_t order);

}  // namespace lockstep::ptx
