// What launches executed, added up by kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/machine.hpp"

namespace lockstep::ptx {

struct KernelCounts {
    std::string kernel;  // without namespaces and parameters
    std::uint64_t launches = 0, blocks = 0, warps = 0;
    std::uint32_t most_shared_bytes = 0;  // of a block
    Counts counts;
};

// Whether launches are counted from now on; at first they are not, which is faster.
void count_launches(bool on);
bool counting_launches();
void add_launch(const KernelCounts& launch);
// Those since the last call.
std::vector<KernelCounts> take_counts();

}  // namespace lockstep::ptx
