// A node's available memory.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Bytes that processes like this one can still allocate together: the minimum of MemAvailable and what the limits of
// this process's cgroups leave (versions 1 and 2; droppable page cache counts as free). The largest number if unknown.
// `root`: prefix of /proc and /sys, for tests.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace lockstep
