// Where the values of a rank's share of a checkpoint are: in copies, or still in the tensors that training holds. Only
// checkpoint/ includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "checkpoint/layout.hpp"

namespace lockstep::checkpoint {

struct FreeAligned {
    void operator()(float* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<float[], FreeAligned>;
constexpr std::size_t huge_page = std::size_t{2} << 20;
// Uninitialized; null for 0 bytes. Aligned to huge pages, it asks for them. Throws std::bad_alloc.
AlignedMemory allocate_aligned(std::size_t bytes, std::size_t alignment);

// Elements [first, first + count) of a block, which lie in a tensor.
struct LivePart {
    std::int64_t first = 0, count = 0;
    const float* values = nullptr;
};
using LiveParts = std::vector<LivePart>;

// Copies of blocks are aligned for direct I/O; those of blocks of whole pages lie one after another.
class Snapshot {
  public:
    Snapshot() = default;
    // Memory for copies of all blocks. Throws std::bad_alloc, as the next one.
    explicit Snapshot(const std::vector<ChecksumBlock>& blocks)
        : Snapshot(blocks, std::vector<LiveParts>(blocks.size())) {}
    // Memory for copies of those blocks that are not wholly live; `live` has the live parts of each.
    Snapshot(const std::vector<ChecksumBlock>& blocks, std::vector<LiveParts> live);

    float* block(std::size_t number) const { return copies_[number]; }  // its copy; null: all of it is live
    std::uint64_t live_bytes(std::size_t number) const;
    // The values of blocks [first, last) in their copies, where these lie one after another; else null. What is live of
    // them is copied. Other threads may use other blocks meanwhile.
    float* together(std::size_t first, std::size_t last);
    // Gathers a block's values, copied and live.
    void gather(std::size_t number, float* to) const;
    // Copies what is live of the blocks [first, last). Other threads may use other blocks meanwhile. Throws
    // std::bad_alloc before it has changed anything.
    void keep(std::size_t first, std::size_t last);
    std::uint64_t bytes() const { return bytes_; }  // of memory for copies

  private:
    void settle(std::size_t number);
    void add_memory(const std::vector<std::size_t>& numbers);

    std::vector<std::uint64_t> sizes_;  // bytes of each block
    std::vector<LiveParts> live_;
    std::vector<float*> copies_;
    std::vector<AlignedMemory> memory_;
    std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::checkpoint
