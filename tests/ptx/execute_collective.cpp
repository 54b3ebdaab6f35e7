#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "ptx/state.hpp"

namespace lockstep::ptx {

namespace {

// The lanes of the mask are in order from here on.
void pass_warp_barrier(Lanes& x) {
    Warp& warp = *x.warp;
    if (warp.clock >= most_clock)
        throw fault_error("a warp of {} passes too many barriers", x.launch->kernel.shape.name);
    const std::uint32_t now = ++warp.clock;
    if (x.mask == warp.existing) {
        warp.synchronised = now;
        return;
    }
    std::array<std::uint32_t, lane_count> joined{};
    for (std::uint32_t left = x.mask; left != 0; left &= left - 1) {
        const auto& known = warp.lane_known[static_cast<std::size_t>(std::countr_zero(left))];
        for (std::size_t lane = 0; lane < lane_count; ++lane) joined[lane] = std::max(joined[lane], known[lane]);
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane)
        if (x.mask >> lane & 1) joined[lane] = now;
    for (std::size_t lane = 0; lane < lane_count; ++lane)
        if (x.mask >> lane & 1) warp.lane_known[lane] = joined;
}

void shuffle(Lanes& x, const Instruction& i) {
    const auto* const value = x.place<std::uint32_t>(i.b);
    const auto *const by = x.need<std::uint32_t>(i.c), *const limits = x.need<std::uint32_t>(i.fourth);
    std::uint32_t result[lane_count], inside = 0, defined = 0;
    for (std::uint32_t left = x.mask; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const int step = static_cast<int>(by[lane] & 31), clamp = static_cast<int>(limits[lane] & 31),
                  segment = static_cast<int>(limits[lane] >> 8 & 31);
        const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
        int from = lane;
        bool valid = true;
        switch (static_cast<Shuffle>(i.mode)) {
            case Shuffle::up:
                from = lane - step;
                valid = from >= last;
                break;
            case Shuffle::down:
                from = lane + step;
                valid = from <= last;
                break;
            case Shuffle::butterfly:
                from = lane ^ step;
                valid = from <= last;
                break;
            case Shuffle::index:
                from = first | (step & ~segment);
                valid = from <= last;
                break;
        }
        if (!valid) from = lane;
        if (!(x.mask >> from & 1))
            x.report(FindingKind::collective, lane,
                     fmt::format("asks for the value of lane {}, which takes no part", from));
        inside |= static_cast<std::uint32_t>(valid) << lane;
        result[lane] = value[from];
        defined |= (x.written[i.b] >> from & 1) << lane;
    }
    x.defined = defined;
    x.origin = x.warp->origins[i.b];
    if (i.d != no_slot) x.put(i.d, result);
    x.defined = all_lanes;
    x.put_predicate(i.second, inside);
}

void vote(Lanes& x, const Instruction& i) {
    const std::uint32_t yes = (i.flag ? ~x.need_predicate(i.b) : x.need_predicate(i.b)) & x.mask;
    switch (static_cast<Vote>(i.mode)) {
        case Vote::ballot: {
            std::uint32_t result[lane_count];
            std::fill(std::begin(result), std::end(result), yes);
            return x.put(i.d, result);
        }
        case Vote::all:
            return x.put_predicate(i.d, yes == x.mask ? all_lanes : 0);
        case Vote::any:
            return x.put_predicate(i.d, yes != 0 ? all_lanes : 0);
        case Vote::uniform:
            return x.put_predicate(i.d, yes == 0 || yes == x.mask ? all_lanes : 0);
    }
}

}  // namespace

void execute_collective(Lanes& x, const Instruction& i) {
    switch (i.op) {
        case Op::warp_barrier:
            return pass_warp_barrier(x);
        case Op::shuffle:
            return shuffle(x, i);
        case Op::vote:
            return vote(x, i);
        default: {
            std::uint32_t result[lane_count];
            std::fill(std::begin(result), std::end(result), x.mask);
            x.put(i.d, result);
        }
    }
}

}  // namespace lockstep::ptx
