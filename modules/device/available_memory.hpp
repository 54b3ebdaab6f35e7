// How much of a node's memory is left.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Bytes that processes like this one may still take together: what the system calls available (MemAvailable), or what
// the limits of the control groups above this process leave (versions 1 and 2; file pages that can be dropped count as
// free), whichever is least. The largest number where nothing is known. `root`: where /proc and /sys are, for tests.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace lockstep
