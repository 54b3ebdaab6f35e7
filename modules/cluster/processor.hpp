// What kind of processor a machine has, as the system tells it.
#pragma once

#include <string>

namespace lockstep::cluster {

// "AMD EPYC 7763 64-Core Processor"; on Arm, where the system gives numbers only, "implementer 0x41, part 0xd4f". Empty
// where the file says neither.
std::string processor_model(const std::string& cpuinfo = "/proc/cpuinfo");

}  // namespace lockstep::cluster
