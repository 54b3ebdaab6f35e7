// Watches single requests for memory while a reader runs.
#pragma once

#include <cstdint>

namespace lockstep::fuzz {

// While it lives, a request for more bytes at once is a finding. One at a time.
class AllocationLimit {
  public:
    explicit AllocationLimit(std::uint64_t most);
    ~AllocationLimit();
    AllocationLimit(const AllocationLimit&) = delete;
    AllocationLimit& operator=(const AllocationLimit&) = delete;
};

}  // namespace lockstep::fuzz
