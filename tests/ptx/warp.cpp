#include "ptx/warp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

namespace lockstep::ptx {

namespace {

class Run {
  public:
    Run(Warp& warp, BlockState& block)
        : warp_(warp),
          launch_(block.launch),
          code_(block.launch.kernel.code.data()),
          x_{warp.file.get(), warp.written.data(), warp.predicates.data(), warp.predicate_written.data(), 0, 0, &warp,
             &block,          &block.launch} {}

    void run(std::uint64_t budget) {
        if (warp_.split) choose();
        while (budget-- > 0 && warp_.state == Warp::State::ready && !launch_.stopped) step();
    }

  private:
    Part& part() { return warp_.parts[warp_.split ? current_ : warp_.parts.size() - 1]; }

    void step() {
        Part& now = part();
        if (now.pc == now.reconverge && !warp_.split) {
            warp_.parts.pop_back();
            return;
        }
        const Instruction& one = code_[now.pc];
        std::uint32_t mask = now.mask;
        if (one.guard != no_slot) {
            x_.mask = mask;
            x_.pc = now.pc;
            const std::uint32_t guard = x_.need_predicate(one.guard);
            mask &= one.guard_negated ? ~guard : guard;
        }
        x_.mask = mask;
        x_.pc = now.pc;
        x_.defined = all_lanes;
        switch (one.group) {
            case Group::control:
                count(mask);
                return one.op == Op::branch ? branch(one, mask) : leave(mask);
            case Group::collective:
            case Group::tensor:
                return meet(one, mask);
            case Group::integer:
                if (mask != 0) execute_integer(x_, one);
                break;
            case Group::floating:
                if (mask != 0) execute_floating(x_, one);
                break;
            case Group::convert:
                if (mask != 0) execute_convert(x_, one);
                break;
            case Group::predicate:
                if (mask != 0) execute_predicate(x_, one);
                break;
            case Group::memory:
                if (mask != 0) execute_memory(x_, one);
                break;
        }
        count(mask);
        ++now.pc;
    }

    void count(std::uint32_t mask) {
        ++launch_.executed[x_.pc];
        launch_.executed_lanes[x_.pc] += mask == all_lanes ? 32 : static_cast<std::uint64_t>(std::popcount(mask));
    }

    void branch(const Instruction& one, std::uint32_t taken) {
        Part& now = part();
        const std::uint32_t rest = now.mask & ~taken;
        if (rest == 0) {
            now.pc = one.target;
        } else if (taken == 0) {
            ++now.pc;
        } else {
            if (one.flag)
                x_.report(FindingKind::collective, std::countr_zero(rest),
                          "lanes part at a branch that says it is uniform");
            diverge({one.target, taken}, {now.pc + 1, rest}, one.reconverge);
        }
    }

    void diverge(Part a, Part b, std::uint32_t reconverge) {
        if (launch_.random.next() & 1) std::swap(a, b);
        Part& now = part();
        if (warp_.split) {
            now = a;
            warp_.parts.push_back(b);
            return;
        }
        a.reconverge = b.reconverge = reconverge;
        if (now.reconverge == reconverge)
            warp_.parts.pop_back();
        else
            now.pc = reconverge;
        for (const Part& one : {a, b})
            if (one.pc != reconverge) warp_.parts.push_back(one);
        // Both stand where they meet: the entry below has them.
    }

    void leave(std::uint32_t mask) {
        warp_.live &= ~mask;
        if (warp_.live == 0) {
            warp_.state = Warp::State::done;
            warp_.parts.clear();
            return;
        }
        ++part().pc;
        for (Part& one : warp_.parts) one.mask &= ~mask;
        const std::size_t before = warp_.parts.size();
        const bool own_left = part().mask == 0;
        warp_.parts.erase(
            std::remove_if(warp_.parts.begin(), warp_.parts.end(), [](const Part& one) { return one.mask == 0; }),
            warp_.parts.end());
        if (warp_.split && own_left && before != warp_.parts.size()) choose();
    }

    // Splits a warp in lockstep: what waits below in the stack are lanes that have arrived there.
    void split() {
        if (warp_.split) return;
        std::vector<Part> parts;
        std::uint32_t above = 0;
        for (std::size_t i = warp_.parts.size(); i-- > 0;) {
            const Part& one = warp_.parts[i];
            if (const std::uint32_t here = one.mask & ~above; here != 0) parts.push_back({one.pc, here});
            above |= one.mask;
        }
        warp_.parts = std::move(parts);
        warp_.split = true;
        current_ = 0;
    }

    // One of the parts that can go on; where none can, one whose lanes have all come.
    void choose() {
        std::size_t ready = 0;
        for (const Part& one : warp_.parts) ready += !one.waiting;
        if (ready == 0) {
            for (std::size_t i = 0; i < warp_.parts.size(); ++i) {
                current_ = i;
                if (all_have_come(code_[warp_.parts[i].pc])) return;
            }
            return report_stuck();
        }
        auto wanted = launch_.random.below(ready);
        for (current_ = 0; warp_.parts[current_].waiting || wanted-- > 0;) ++current_;
    }

    std::uint32_t members(const Instruction& one, std::uint32_t mask) {
        const bool all = one.op == Op::barrier || one.group == Group::tensor;
        return all ? warp_.live : x_.place<std::uint32_t>(one.a)[std::countr_zero(mask)] & warp_.live;
    }

    // Unites the waiting parts at the current one's place if they are all that its mask names.
    bool all_have_come(const Instruction& one) {
        const std::uint32_t pc = part().pc;
        const std::uint32_t wanted = members(one, part().mask);
        const auto belongs = [&](const Part& other) {
            return other.waiting && other.pc == pc && (other.mask & ~wanted) == 0 && members(one, other.mask) == wanted;
        };
        std::uint32_t here = 0;
        for (const Part& other : warp_.parts)
            if (belongs(other)) here |= other.mask;
        if (here != wanted) return false;
        warp_.parts.erase(std::remove_if(warp_.parts.begin(), warp_.parts.end(), belongs), warp_.parts.end());
        warp_.parts.push_back({pc, here});
        current_ = warp_.parts.size() - 1;
        if (warp_.parts.size() == 1 && launch_.options.schedule == Options::Schedule::lockstep) {
            warp_.split = false;
            warp_.parts[0].reconverge = static_cast<std::uint32_t>(launch_.kernel.code.size());
        }
        return true;
    }

    void report_stuck() {
        const auto at_barrier = std::find_if(warp_.parts.begin(), warp_.parts.end(),
                                             [&](const Part& part) { return code_[part.pc].op == Op::barrier; });
        if (at_barrier != warp_.parts.end()) std::iter_swap(warp_.parts.begin(), at_barrier);
        const Part& first = warp_.parts[0];
        const Instruction& one = code_[first.pc];
        const std::uint32_t wanted = members(one, first.mask);
        std::string text = fmt::format("lanes {:#010x} wait for lanes {:#010x}", first.mask, wanted & ~first.mask);
        for (std::size_t i = 1; i < warp_.parts.size(); ++i)
            text += fmt::format("{} {:#010x} wait at {}", i == 1 ? ";" : ",", warp_.parts[i].mask,
                                place_text(launch_.kernel, warp_.parts[i].pc));
        x_.pc = first.pc;
        x_.report(one.op == Op::barrier ? FindingKind::barrier : FindingKind::collective, std::countr_zero(first.mask),
                  text, true);
    }

    void meet(const Instruction& one, std::uint32_t mask) {
        if (mask == 0 || one.op == Op::active_mask) {
            if (mask != 0) execute_collective(x_, one);
            count(mask);
            ++part().pc;
            return;
        }
        if (one.group == Group::tensor && warp_.live != all_lanes) {
            x_.report(
                FindingKind::collective, std::countr_zero(mask),
                fmt::format("all 32 lanes must take part, and lanes {:#010x} have ended or are not there", ~warp_.live),
                true);
            return;
        }
        const bool named = one.group == Group::collective && one.op != Op::barrier;
        if (named) {
            const std::uint32_t* const masks = x_.need<std::uint32_t>(one.a);
            std::uint32_t same = 0, outside = 0;
            for (std::uint32_t left = mask; left != 0; left &= left - 1) {
                const int lane = std::countr_zero(left);
                same |= static_cast<std::uint32_t>(masks[lane] == masks[std::countr_zero(mask)]) << lane;
                outside |= static_cast<std::uint32_t>(!(masks[lane] >> lane & 1)) << lane;
            }
            if (outside != 0) {
                x_.report(FindingKind::collective, std::countr_zero(outside),
                          "the mask does not name the lane that executes it", true);
                return;
            }
            if (same != mask) {  // as parts of their own
                split();
                Part& now = part();
                const Part rest{now.pc, now.mask & ~same};
                now.mask = same;
                warp_.parts.push_back(rest);
                return;
            }
        }
        if (mask != members(one, mask)) {
            wait(mask);
            return;
        }
        if (one.op == Op::barrier) {
            count(mask);
            arrive_at_barrier(warp_, *x_.block, one, x_);
            return;
        }
        one.group == Group::tensor ? execute_tensor(x_, one) : execute_collective(x_, one);
        count(mask);
        ++part().pc;
    }

    // Lanes that come to a collective before the others it names.
    void wait(std::uint32_t mask) {
        split();
        Part& now = part();
        if (now.mask != mask) {  // its predicate is false for some
            const Part rest{now.pc + 1, now.mask & ~mask};
            now.mask = mask;
            now.waiting = true;
            warp_.parts.push_back(rest);
        } else {
            now.waiting = true;
        }
        if (!all_have_come(code_[part().pc])) choose();
    }

    Warp& warp_;
    Launch& launch_;
    const Instruction* code_;
    Lanes x_;
    std::size_t current_ = 0;
};

}  // namespace

void make_warp(Warp& warp, const Launch& launch, int index) {
    const Kernel& kernel = launch.kernel;
    warp.index = index;
    const std::size_t bytes = std::max<std::size_t>(std::size_t{kernel.slots} * slot_bytes, slot_bytes);
    warp.file.reset(static_cast<std::byte*>(std::aligned_alloc(slot_bytes, bytes)));
    if (warp.file == nullptr) throw std::bad_alloc();
    std::memset(warp.file.get(), 0, bytes);
    for (const auto& [slot, width, value] : kernel.constants)
        for (std::size_t lane = 0; lane < lane_count; ++lane)
            std::memcpy(warp.file.get() + std::size_t{slot} * slot_bytes + lane * width, &value, width);
    warp.written.resize(kernel.slots);
    warp.low_written.resize(kernel.slots);
    warp.predicates.resize(kernel.predicates);
    warp.origins.resize(kernel.slots);
    warp.predicate_origins.resize(kernel.predicates);
    warp.predicate_written.resize(kernel.predicates);
    warp.local.resize(std::size_t{kernel.local_bytes} * lane_count);
    warp.local_written.resize(warp.local.size());
}

namespace {

std::uint32_t special_value(Special special, const BlockState& block, int warp, int lane) {
    const Launch& launch = block.launch;
    const auto thread = static_cast<std::uint32_t>(warp * lane_count + lane);
    const auto bit = static_cast<std::uint32_t>(lane);
    switch (special) {
        case Special::tid_x:
            return thread % launch.block.x;
        case Special::tid_y:
            return thread / launch.block.x % launch.block.y;
        case Special::tid_z:
            return thread / launch.block.x / launch.block.y;
        case Special::ntid_x:
            return launch.block.x;
        case Special::ntid_y:
            return launch.block.y;
        case Special::ntid_z:
            return launch.block.z;
        case Special::ctaid_x:
            return block.id.x;
        case Special::ctaid_y:
            return block.id.y;
        case Special::ctaid_z:
            return block.id.z;
        case Special::nctaid_x:
            return launch.grid.x;
        case Special::nctaid_y:
            return launch.grid.y;
        case Special::nctaid_z:
            return launch.grid.z;
        case Special::laneid:
            return bit;
        case Special::warpid:
            return static_cast<std::uint32_t>(warp);
        case Special::nwarpid:
            return static_cast<std::uint32_t>(block.warps.size());
        case Special::lanemask_eq:
            return 1u << bit;
        case Special::lanemask_lt:
            return (1u << bit) - 1;
        case Special::lanemask_le:
            return (2u << bit) - 1;
        case Special::lanemask_gt:
            return ~((2u << bit) - 1);
        case Special::lanemask_ge:
            return ~((1u << bit) - 1);
        case Special::dynamic_smem_size:
            return launch.dynamic_shared_bytes;
        case Special::total_smem_size:
            return static_cast<std::uint32_t>(block.shared.size());
    }
    return 0;
}

}  // namespace

void begin_warp(Warp& warp, BlockState& block) {
    const Kernel& kernel = block.launch.kernel;
    std::fill(warp.written.begin(), warp.written.end(), 0u);
    std::fill(warp.low_written.begin(), warp.low_written.end(), 0u);
    std::fill(warp.origins.begin(), warp.origins.end(), no_origin);
    std::fill(warp.predicate_origins.begin(), warp.predicate_origins.end(), no_origin);
    for (const auto& constant : kernel.constants) warp.written[constant.slot] = all_lanes;
    for (const auto& [special, slot] : kernel.specials) {
        auto* const values = reinterpret_cast<std::uint32_t*>(warp.file.get() + std::size_t{slot} * slot_bytes);
        for (int lane = 0; lane < lane_count; ++lane) values[lane] = special_value(special, block, warp.index, lane);
        warp.written[slot] = all_lanes;
    }
    std::fill(warp.predicate_written.begin(), warp.predicate_written.end(), 0u);
    warp.predicates[0] = all_lanes;
    warp.predicates[1] = 0;
    warp.predicate_written[0] = warp.predicate_written[1] = all_lanes;
    const std::uint32_t threads = block.threads - static_cast<std::uint32_t>(warp.index) * lane_count;
    warp.existing = warp.live = threads >= lane_count ? all_lanes : (1u << threads) - 1;
    warp.parts.assign(1, {0, warp.live, static_cast<std::uint32_t>(kernel.code.size())});
    warp.split = block.launch.options.schedule == Options::Schedule::split;
    warp.state = Warp::State::ready;
    warp.clock = warp.synchronised = 1;
    warp.known.fill(0);
    for (auto& known : warp.lane_known) known.fill(0);
    for (auto& copies : warp.copies) copies.clear();
    warp.groups.fill(0);
    std::fill(warp.local_written.begin(), warp.local_written.end(), std::uint8_t{0});
}

void run_warp(Warp& warp, BlockState& block, std::uint64_t budget) {
    Run(warp, block).run(budget);
}

}  // namespace lockstep::ptx
