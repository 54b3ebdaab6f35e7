// Memory for a rank's share of a checkpoint, taken while training stands still. Only checkpoint/ includes this.
#pragma once

#include <cstddef>
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
// Not filled; null for no bytes. Aligned to a huge page it asks for huge pages. std::bad_alloc where there is no room.
AlignedMemory allocate_aligned(std::size_t bytes, std::size_t alignment);

// The blocks one behind another, each from an address that can be written past the page cache.
class Snapshot {
  public:
    Snapshot() = default;
    explicit Snapshot(const std::vector<Block>& blocks);  // std::bad_alloc where there is no room
    float* block(std::size_t number) const { return memory_.get() + starts_[number]; }

  private:
    AlignedMemory memory_;
    std::vector<std::size_t> starts_;  // of each block, in elements
};

}  // namespace lockstep::checkpoint
