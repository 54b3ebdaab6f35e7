// lockstep-analyze as a function. Results go to stdout, the one sentence of an error to stderr.
#pragma once

namespace lockstep::analysis {

// Parses the command line and runs the command; returns the exit code. Does not throw. A damaged file may still crash
// it (load/guard.hpp).
int run_program(int argc, const char* const* argv);

}  // namespace lockstep::analysis
