// A warp's way through a kernel: divergence, and meeting again.
#pragma once

#include "ptx/state.hpp"

namespace lockstep::ptx {

// The warp's registers, with the constants in them. Before its first block.
void make_warp(Warp& warp, const Launch& launch, int index);
// At the begin of a block.
void begin_warp(Warp& warp, BlockState& block);

// Runs for `budget` instructions, until the warp is done or stands at a barrier, or the launch is stopped. A warp that
// comes to a barrier is handed to `arrive`.
void run_warp(Warp& warp, BlockState& block, std::uint64_t budget);

// A warp has come to a block's barrier (its one part stands there).
void arrive_at_barrier(Warp& warp, BlockState& block, const Instruction& one, Lanes& lanes);

}  // namespace lockstep::ptx
