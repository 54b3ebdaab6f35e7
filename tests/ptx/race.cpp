#include "ptx/race.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::ptx {

namespace {

struct CellRange {
    Page* page;
    Cell* first;
    std::uint32_t count, index;
};

inline CellRange cells_of(Lanes& x, Region& region, std::uint64_t address, std::uint32_t bytes) {
    Page& page = region.page(address, bytes);
    if (x.launch->kernel.partial_barriers && page.read_clocks.empty()) [[unlikely]]
        page.read_clocks.resize(page.cells.size() * most_warps);
    const auto index = static_cast<std::uint32_t>((address - region.origin) % page_bytes >> page.shift);
    return {&page, &page.cells[index], bytes >> page.shift, index};
}

bool in_order(const Lanes& x, Stamp one, std::uint32_t lane) {
    const Warp& warp = *x.warp;
    const std::uint32_t clock = clock_of(one);
    if (warp_of(one) != static_cast<std::uint32_t>(warp.index)) return clock < warp.known[warp_of(one)];
    return clock < warp.synchronised || lane_of(one) == lane || clock < warp.lane_known[lane][lane_of(one)];
}

std::string who(const Lanes& x, Stamp one) {
    if (warp_of(one) == static_cast<std::uint32_t>(x.warp->index))
        return fmt::format("lane {} of the same warp", lane_of(one));
    return fmt::format("warp {}, lane {}", warp_of(one), lane_of(one));
}

std::string block_text(const Launch& launch, std::uint32_t serial) {
    const std::uint64_t order = serial - launch.first_serial;
    const std::uint64_t index = (launch.first_block + order * launch.block_step) % launch.blocks;
    return fmt::format("block ({}, {}, {})", index % launch.grid.x, index / launch.grid.x % launch.grid.y,
                       index / launch.grid.x / launch.grid.y);
}

struct Other {
    std::uint32_t serial;
    Stamp stamp;
    std::uint32_t pc;
};

[[gnu::noinline]] void report_race(Lanes& x, int lane, bool shared, std::string_view did, std::string_view other_did,
                                   const Other& other, std::uint64_t address) {
    const auto kind = shared ? FindingKind::race_shared : FindingKind::race_global;
    if (x.is_reported(kind)) return;
    const bool same_block = other.serial == x.block->serial;
    x.report(kind, lane,
             fmt::format("{} {} memory at {:#x}, which {} {} at {}, with no {} between them", did,
                         shared ? "shared" : "global", address,
                         same_block ? who(x, other.stamp) : block_text(*x.launch, other.serial), other_did,
                         place_text(x.launch->kernel, other.pc & pc_bits), same_block ? "barrier" : "order"));
}

[[gnu::noinline]] void report_copy(Lanes& x, int lane, std::string_view did, const Cell& cell, std::uint64_t address) {
    if (x.is_reported(FindingKind::asynchronous_copy)) return;
    const bool pending = (cell.write_pc & pending_bit) != 0;
    x.report(FindingKind::asynchronous_copy, lane,
             fmt::format("{} shared memory at {:#x}, the target of a cp.async of {} at {} that {}", did, address,
                         who(x, cell.write), place_text(x.launch->kernel, cell.write_pc & pc_bits),
                         pending ? "was not waited for" : "no barrier has made visible"));
}

// Whether the cell's last write is in order before the lane's access; reports where not. Same value, same instruction:
// `benign` is asked.
template <class F>
void check_write(Lanes& x, const Cell& cell, int lane, bool shared, std::string_view did, std::uint64_t address,
                 std::uint32_t base, F benign) {
    if (cell.write_serial < base) return;
    if (cell.write_pc & pending_bit) return report_copy(x, lane, did, cell, address);
    if (cell.write_serial == x.block->serial) {
        if (in_order(x, cell.write, static_cast<std::uint32_t>(lane))) return;
        if (cell.write_pc & asynchronous_bit) return report_copy(x, lane, did, cell, address);
        if (benign()) return;
    }
    report_race(x, lane, shared, did, "wrote", {cell.write_serial, cell.write, cell.write_pc}, address);
}

std::uint32_t base_of(const Lanes& x, bool shared) {
    return shared ? x.block->serial : x.launch->first_serial;
}

// Whether the cell's reads are in order before the lane's write; reports where not.
void check_reads(Lanes& x, const CellRange& range, std::uint32_t i, int lane, bool shared, std::string_view did,
                 std::uint64_t address, std::uint32_t base) {
    const Cell& cell = range.first[i];
    if (cell.read_serial < base) return;
    const Other reader{cell.read_serial, cell.read, cell.read_pc};
    if (cell.read_serial != x.block->serial || cell.read_pc & several_bit) {
        if (cell.read_serial == x.block->serial) {
            if (!x.is_reported(FindingKind::race_global))
                x.report(FindingKind::race_global, lane,
                         fmt::format("{} global memory at {:#x}, which another block read in the same launch", did,
                                     address));
            return;
        }
        return report_race(x, lane, shared, did, "read", reader, address);
    }
    const Warp& warp = *x.warp;
    const auto self = static_cast<std::uint32_t>(warp.index);
    if (clock_of(cell.read) < x.block->phase) return;  // all before the last barrier of the block
    std::uint32_t others = cell.read_warps & ~(1u << self);
    if (!range.page->read_clocks.empty())
        for (std::uint32_t left = others; left != 0; left &= left - 1) {
            const auto other = static_cast<std::uint32_t>(std::countr_zero(left));
            const auto clock = range.page->read_clocks[(range.index + i) * most_warps + other];
            if (clock < warp.known[other]) others &= ~(1u << other);
        }
    if (others != 0) {
        const auto other = static_cast<std::uint32_t>(std::countr_zero(others));
        const bool is_last = warp_of(cell.read) == other;
        return report_race(x, lane, shared, did, "read",
                           {cell.read_serial, is_last ? cell.read : stamp(other, 0, 0), cell.read_pc}, address);
    }
    if (warp_of(cell.read) != self || clock_of(cell.read) < warp.synchronised) return;
    for (std::uint32_t left = cell.read_lanes & ~(1u << lane); left != 0; left &= left - 1) {
        const auto other = static_cast<std::uint32_t>(std::countr_zero(left));
        if (clock_of(cell.read) >= warp.lane_known[static_cast<std::size_t>(lane)][other])
            return report_race(x, lane, shared, did, "read", {cell.read_serial, stamp(self, other, 0), cell.read_pc},
                               address);
    }
}

void set_write(Lanes& x, Cell& cell, int lane, std::uint32_t bits) {
    cell.write_serial = x.block->serial;
    cell.write_pc = x.pc | bits;
    cell.write = stamp(static_cast<std::uint32_t>(x.warp->index), static_cast<std::uint32_t>(lane), x.warp->clock);
    cell.read_serial = 0;
}

}  // namespace

namespace {

// What all reads of an instruction have in common.
struct Reader {
    Lanes& x;
    bool shared;
    std::uint32_t self, clock, synchronised, phase, base, serial;

    Reader(Lanes& lanes, bool is_shared)
        : x(lanes),
          shared(is_shared),
          self(static_cast<std::uint32_t>(x.warp->index)),
          clock(x.warp->clock),
          synchronised(x.warp->synchronised),
          phase(x.block->phase),
          base(base_of(x, shared)),
          serial(x.block->serial) {}

    // Before, with neither a barrier nor a write since.
    bool has_read(const Cell& cell, std::uint32_t readers) const {
        constexpr Stamp lanes = stamp(0, 31, 0);
        return cell.read_serial == serial && (cell.read & ~lanes) == stamp(self, 0, clock) &&
               (cell.read_lanes & readers) == readers;
    }

    void read(const CellRange& range, std::uint64_t address, std::uint32_t readers) const {
        const Stamp now = stamp(self, static_cast<std::uint32_t>(std::countr_zero(readers)), clock);
        for (std::uint32_t i = 0; i < range.count; ++i) {
            Cell& cell = range.first[i];
            if (has_read(cell, readers)) continue;
            if (cell.write_serial >= base) check(cell, range, i, address, readers);
            note(cell, range, i, now, readers);
        }
    }

  private:
    void check(Cell& cell, const CellRange& range, std::uint32_t i, std::uint64_t address,
               std::uint32_t readers) const {
        const std::uint32_t writer = warp_of(cell.write);
        if (cell.write_serial == serial && !(cell.write_pc & pending_bit) &&
            clock_of(cell.write) < (writer == self ? synchronised : x.warp->known[writer]))
            return;
        for (std::uint32_t left = readers; left != 0; left &= left - 1)
            check_write(x, cell, std::countr_zero(left), shared, "reads", address + (i << range.page->shift), base,
                        [] { return false; });
    }

    void note(Cell& cell, const CellRange& range, std::uint32_t i, Stamp now, std::uint32_t readers) const {
        std::uint32_t several = 0;
        if (cell.read_serial != serial) {
            several = cell.read_serial >= base ? several_bit : 0;
            cell.read_warps = 0;
            cell.read_lanes = 0;
        } else {
            several = cell.read_pc & several_bit;
            if (clock_of(cell.read) < phase) cell.read_warps = 0;
            if (warp_of(cell.read) != self || clock_of(cell.read) < synchronised) cell.read_lanes = 0;
        }
        cell.read_serial = serial;
        cell.read_pc = x.pc | several;
        cell.read = now;
        cell.read_warps |= 1u << self;
        cell.read_lanes |= readers;
        if (!range.page->read_clocks.empty()) range.page->read_clocks[(range.index + i) * most_warps + self] = clock;
    }
};

}  // namespace

void note_read(Lanes& x, Region& region, std::uint64_t address, std::uint32_t bytes, std::uint32_t readers,
               bool shared) {
    Reader(x, shared).read(cells_of(x, region, address, bytes), address, readers);
}

void note_reads(Lanes& x, const Reach& reached, const Addresses& addresses, std::uint32_t bytes, bool shared) {
    if (reached.lanes == 0) return;
    const Reader reader(x, shared);
    if (reached.uniform) {
        const std::uint64_t address = addresses[std::countr_zero(reached.lanes)];
        return reader.read(cells_of(x, *reached.region, address, bytes), address, reached.lanes);
    }
    for (std::uint32_t left = reached.lanes; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const CellRange range = cells_of(x, *reached.of(lane), addresses[lane], bytes);
        for (std::uint32_t i = 0; i < range.count; ++i)
            if (!reader.has_read(range.first[i], 1u << lane)) {
                reader.read(range, addresses[lane], 1u << lane);
                break;
            }
    }
}

void note_write(Lanes& x, Region& region, std::uint64_t address, std::uint32_t bytes, int lane, bool shared,
                const std::byte* before, const std::byte* after) {
    const CellRange range = cells_of(x, region, address, bytes);
    const std::uint32_t base = base_of(x, shared);
    const auto self = static_cast<std::uint32_t>(x.warp->index);
    for (std::uint32_t i = 0; i < range.count; ++i) {
        Cell& cell = range.first[i];
        const std::uint32_t at = i << range.page->shift;
        check_write(x, cell, lane, shared, "writes", address + at, base, [&] {
            return warp_of(cell.write) == self && clock_of(cell.write) == x.warp->clock && cell.write_pc == x.pc &&
                   std::memcmp(before + at, after + at, std::size_t{1} << range.page->shift) == 0;
        });
        check_reads(x, range, i, lane, shared, "writes", address + at, base);
        set_write(x, cell, lane, 0);
    }
}

void note_copy(Lanes& x, Region& region, const AsynchronousCopy& copy, int lane) {
    const CellRange range = cells_of(x, region, copy.to, copy.bytes);
    for (std::uint32_t i = 0; i < range.count; ++i) {
        Cell& cell = range.first[i];
        const std::uint64_t address = copy.to + (i << range.page->shift);
        check_write(x, cell, lane, true, "copies to", address, x.block->serial, [] { return false; });
        check_reads(x, range, i, lane, true, "copies to", address, x.block->serial);
        set_write(x, cell, lane, asynchronous_bit | pending_bit);
    }
}

void note_copied(Lanes& x, Region& region, const AsynchronousCopy& copy, int lane) {
    const CellRange range = cells_of(x, region, copy.to, copy.bytes);
    const auto self = static_cast<std::uint32_t>(x.warp->index);
    for (std::uint32_t i = 0; i < range.count; ++i) {
        Cell& cell = range.first[i];
        if (cell.write_serial != x.block->serial || !(cell.write_pc & pending_bit)) continue;
        if (warp_of(cell.write) != self || lane_of(cell.write) != static_cast<std::uint32_t>(lane)) continue;
        cell.write = stamp(self, static_cast<std::uint32_t>(lane), x.warp->clock);
        cell.write_pc = copy.pc | asynchronous_bit;
    }
}

}  // namespace lockstep::ptx
