// What is known of each byte of a memory: whether it was ever written, and who accessed it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace lockstep::ptx {

// When and by whom an access was made: its warp's number in the block, its lane, and the warp's clock, which counts the
// barriers the warp has passed.
using Stamp = std::uint32_t;
constexpr std::uint32_t clock_bits = 22, most_clock = (1u << clock_bits) - 1;
constexpr Stamp stamp(std::uint32_t warp, std::uint32_t lane, std::uint32_t clock) {
    return warp << 27 | lane << clock_bits | clock;
}
constexpr std::uint32_t warp_of(Stamp one) {
    return one >> 27;
}
constexpr std::uint32_t lane_of(Stamp one) {
    return one >> clock_bits & 31;
}
constexpr std::uint32_t clock_of(Stamp one) {
    return one & most_clock;
}

// The last write and the reads since. A serial is a block's, counted over all launches: what has an older one than the
// launch's first is of another launch, and in order.
struct Cell {
    std::uint32_t write_serial, write_pc;
    Stamp write;
    std::uint32_t read_serial, read_pc;
    Stamp read;                // the last
    std::uint32_t read_warps;  // all that read since the block's last barrier
    std::uint32_t read_lanes;  // of the last reader's warp, since the warp's last barrier
};
// In write_pc: the write is a cp.async's, and it is not yet waited for. In read_pc: blocks beside the last read too.
constexpr std::uint32_t asynchronous_bit = 1u << 31, pending_bit = 1u << 30, several_bit = 1u << 31;
constexpr std::uint32_t pc_bits = pending_bit - 1;

constexpr std::size_t page_bytes = 1024;

// Cells of as many bytes as the smallest access had until now, 16 at most.
struct Page {
    std::uint8_t shift = 4;
    std::vector<Cell> cells;
    std::vector<std::uint32_t> read_clocks;  // of each cell and warp; empty unless the kernel has partial barriers

    void refine(int to);
};

// One allocation, or a block's shared memory. Addresses are absolute; `origin` is rounded down to whole pages.
class Region {
  public:
    Region(std::uint64_t begin, std::uint64_t bytes);
    std::uint64_t begin, end, origin;

    bool contains(std::uint64_t address, std::uint64_t bytes) const {
        return address >= begin && address + bytes <= end;
    }
    // Of an access that is aligned to its size, of 16 bytes at most: bit i is set where byte i was written.
    std::uint32_t written(std::uint64_t address) const {
        const std::uint64_t at = address - origin;
        return static_cast<std::uint32_t>(bits_.get()[at / 64] >> (at % 64));
    }
    void mark(std::uint64_t address, std::uint32_t bytes) {
        const std::uint64_t at = address - origin;
        bits_.get()[at / 64] |= ((std::uint64_t{1} << bytes) - 1) << (at % 64);
    }
    void unmark(std::uint64_t address, std::uint32_t bytes) {
        const std::uint64_t at = address - origin;
        bits_.get()[at / 64] &= ~(((std::uint64_t{1} << bytes) - 1) << (at % 64));
    }
    void mark_range(std::uint64_t address, std::uint64_t bytes, bool written);

    // Of an access of so many bytes, a power of two: its page, whose cells are no larger.
    Page& page(std::uint64_t address, std::uint32_t bytes) {
        auto& page = pages_.get()[(address - origin) / page_bytes];
        if (page == nullptr || bytes < (1u << page->shift)) [[unlikely]]
            prepare(page, bytes);
        return *page;
    }
    // Forgets accesses, not what is written.
    void forget();

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    void prepare(Page*& place, std::uint32_t bytes);

    std::unique_ptr<std::uint64_t, Free> bits_;  // pages of the system's are zero until they are used
    std::unique_ptr<Page*, Free> pages_;
    std::vector<std::unique_ptr<Page>> owned_;
};

}  // namespace lockstep::ptx
