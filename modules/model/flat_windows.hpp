// A flat tensor of which ranges ("windows") are in memory in turn: those of one buffer share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "device/tensor.hpp"

namespace lockstep::model {

// Elements [first, first + count) of a flat tensor.
struct Piece {
    std::int64_t first = 0, count = 0;
};

struct Window {
    Piece range;
    std::size_t buffer = 0;
};

class FlatWindows {
  public:
    FlatWindows() = default;
    // The windows are disjoint; of one alone, the tensor is simply there. `name` as Arena's.
    FlatWindows(Device device, Type type, std::vector<Window> windows, const std::string& name);

    // Within one window; positions are the flat tensor's. A fault if no window has all of it.
    Tensor slice(std::int64_t first, std::int64_t count) const;
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    std::vector<Window> windows_;  // ascending
    std::vector<Tensor> tensors_;  // of each
    Arena memory_;
};

}  // namespace lockstep::model
