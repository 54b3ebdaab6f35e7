// What the machine found wrong in this process. A process that has findings does not end with exit code 0.
#pragma once

#include <string>

namespace lockstep::ptx {

// Printed to stderr; repeated ones are counted only.
void report(const std::string& finding);
long reported();

// From the first call on: at the process's end, writes which kernels have run to a file in the folder
// LOCKSTEP_PTX_EXECUTED, a line "sm_90 NAME LAUNCHES" for every one that is registered, and sees to the exit code.
void watch_exit();

}  // namespace lockstep::ptx
