#include "ptx/block.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "ptx/warp.hpp"

namespace lockstep::ptx {

namespace {

// What the warps at the barrier did before is in order before what they do now.
void release(BlockState& block, Barrier& barrier) {
    std::uint32_t now = 0, existing = 0;
    std::array<std::uint32_t, most_warps> joined{};
    const auto takes_part = [&](const Warp& warp) { return (barrier.arrived_warps >> warp.index & 1) != 0; };
    for (const auto& warp : block.warps) {
        existing |= 1u << warp->index;
        if (!takes_part(*warp)) continue;
        now = std::max(now, warp->clock + 1);
        for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], warp->known[i]);
    }
    if (now > most_clock) throw fault_error("a block of {} passes too many barriers", block.launch.kernel.shape.name);
    for (std::size_t i = 0; i < joined.size(); ++i)
        if (barrier.arrived_warps >> i & 1) joined[i] = now;
    for (auto& warp : block.warps) {
        if (!takes_part(*warp)) continue;
        warp->known = joined;
        warp->clock = warp->synchronised = now;
        warp->state = Warp::State::ready;
        ++warp->parts.back().pc;
    }
    if (barrier.arrived_warps == existing) block.phase = now;
    barrier = {};
}

Lanes lanes_of(Warp& warp, BlockState& block) {
    return {warp.file.get(),
            warp.written.data(),
            warp.predicates.data(),
            warp.predicate_written.data(),
            warp.live,
            warp.barrier_pc,
            &warp,
            &block,
            &block.launch};
}

// No warp can go on: some stand at barriers that the others will not come to.
void report_stuck(BlockState& block) {
    for (auto& warp : block.warps) {
        if (warp->state != Warp::State::at_barrier) continue;
        std::string text = "the barrier waits for";
        const char* before = " ";
        std::uint32_t ended = 0;
        for (const auto& other : block.warps) {
            if (other->state == Warp::State::done) ++ended;
            if (other->state != Warp::State::at_barrier || other->barrier_pc == warp->barrier_pc) continue;
            text += fmt::format("{}warp {} at {}", before, other->index,
                                place_text(block.launch.kernel, other->barrier_pc));
            before = ", ";
        }
        if (ended != 0) text += fmt::format("{}{} warps that have ended", before, ended);
        if (ended == 0 && *before == ' ') text += " more threads than come";
        Lanes lanes = lanes_of(*warp, block);
        lanes.report(FindingKind::barrier, std::countr_zero(warp->live), text, true);
        return;
    }
}

}  // namespace

void arrive_at_barrier(Warp& warp, BlockState& block, const Instruction& one, Lanes& lanes) {
    const std::uint32_t identifier = lanes.need<std::uint32_t>(one.a)[std::countr_zero(lanes.mask)];
    const std::uint32_t threads = static_cast<std::uint32_t>(block.warps.size()) * lane_count;
    std::uint32_t expected = threads;
    if (one.b != no_slot) expected = lanes.need<std::uint32_t>(one.b)[std::countr_zero(lanes.mask)];
    const int lane = std::countr_zero(lanes.mask);
    if (identifier >= block.barriers.size()) {
        lanes.report(FindingKind::barrier, lane, fmt::format("there is no barrier {}", identifier), true);
        return;
    }
    if (expected == 0 || expected % lane_count != 0 || expected > threads) {
        lanes.report(FindingKind::barrier, lane,
                     fmt::format("{} threads are no whole warps of the block's {}", expected, threads), true);
        return;
    }
    if (warp.live != warp.existing)
        lanes.report(FindingKind::barrier, lane,
                     fmt::format("lanes {:#010x} have ended before the barrier", warp.existing & ~warp.live));
    Barrier& barrier = block.barriers[identifier];
    if (barrier.used && barrier.expected != expected) {
        lanes.report(FindingKind::barrier, lane,
                     fmt::format("it waits for {} threads, and for {} at {}", expected, barrier.expected,
                                 place_text(block.launch.kernel, barrier.pc)),
                     true);
        return;
    }
    if (!barrier.used) barrier = {true, expected, 0, 0, lanes.pc};
    warp.state = Warp::State::at_barrier;
    warp.barrier_pc = lanes.pc;
    barrier.arrived_warps |= 1u << warp.index;
    barrier.arrived_threads += lane_count;
    if (barrier.arrived_threads == expected) release(block, barrier);
}

void run_block(Launch& launch, BlockState& block, std::uint64_t order) {
    const std::uint64_t index = (launch.first_block + order * launch.block_step) % launch.blocks;
    block.id.x = static_cast<std::uint32_t>(index % launch.grid.x);
    block.id.y = static_cast<std::uint32_t>(index / launch.grid.x % launch.grid.y);
    block.id.z = static_cast<std::uint32_t>(index / launch.grid.x / launch.grid.y);
    block.serial = launch.first_serial + static_cast<std::uint32_t>(order);
    block.phase = 1;
    block.barriers.fill({});
    std::fill(block.shared.begin(), block.shared.end(), std::byte{0xff});
    block.shared_region->mark_range(0, block.shared.size(), false);
    for (auto& warp : block.warps) begin_warp(*warp, block);
    std::vector<Warp*> ready;
    while (!launch.stopped) {
        ready.clear();
        bool waiting = false;
        for (auto& warp : block.warps) {
            if (warp->state == Warp::State::ready) ready.push_back(warp.get());
            waiting = waiting || warp->state == Warp::State::at_barrier;
        }
        if (ready.empty()) {
            if (waiting) report_stuck(block);
            return;
        }
        // Mostly to the next barrier, at times for a few instructions.
        const std::uint64_t drawn = launch.random.next();
        run_warp(*ready[drawn % ready.size()], block, drawn >> 32 & 3 ? 1u << 20 : 1 + (drawn >> 40) % 256);
    }
}

}  // namespace lockstep::ptx
