// The allocations of the process that kernels may address.
#pragma once

#include <map>
#include <memory>

#include "ptx/machine.hpp"
#include "ptx/shadow.hpp"

namespace lockstep::ptx {

struct Allocations {
    std::map<std::uint64_t, std::unique_ptr<Region>> regions;  // by their begin
    std::uint32_t next_serial = 1;                             // of a block

    Region* find(std::uint64_t address);  // nullptr: in no allocation
    // The first of this many serials. After 4 billion blocks all accesses are forgotten.
    std::uint32_t take_serials(std::uint64_t count);
};

// For the machine only.
struct MemoryAccess {
    static Allocations& of(GlobalMemory& memory);
};

}  // namespace lockstep::ptx
