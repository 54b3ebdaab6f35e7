// Memory for the copy of a rank's share of a checkpoint, taken while training is paused. Only checkpoint/ includes
// this.
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
// Uninitialized; null for 0 bytes. Aligned to huge pages, it asks for them. Throws std::bad_alloc.
AlignedMemory allocate_aligned(std::size_t bytes, std::size_t alignment);

// The blocks one after another, each aligned for direct I/O.
class Snapshot {
  public:
    Snapshot() = default;
    explicit Snapshot(const std::vector<ChecksumBlock>& blocks);  // throws std::bad_alloc
    float* block(std::size_t number) const { return memory_.get() + starts_[number]; }

  private:
    AlignedMemory memory_;
    std::vector<std::size_t> starts_;  // of each block, in elements
};

}  // namespace lockstep::checkpoint
