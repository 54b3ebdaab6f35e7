// Memory for a rank's share of a checkpoint, taken while training stands still. Only checkpoint/ includes this.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "checkpoint/layout.hpp"

namespace lockstep::checkpoint {

// The blocks one behind another, each from an address that can be written past the page cache.
class Snapshot {
  public:
    Snapshot() = default;
    explicit Snapshot(const std::vector<Block>& blocks);  // std::bad_alloc where there is no room
    float* block(std::size_t number) const { return memory_.get() + starts_[number]; }

  private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float[], Free> memory_;
    std::vector<std::size_t> starts_;  // of each block, in elements
};

}  // namespace lockstep::checkpoint
