// The loops that must run in vector registers. Each file of this folder is compiled once per instruction set, in its own
// namespace, and reached through a table of functions that is chosen at run time (the whole table, once).
//
// A rule keeps this safe: these files hold plain functions over pointers and include only <cmath>, <cstdint> and headers
// of this folder, whose functions are all `static inline`. A template or inline function of the standard library would be
// compiled with wide instructions and might then be linked into code that runs on an older processor.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct VectorFunctions {
    const char* name;
    const struct Elementwise* elementwise;
    const struct Norm* norm;
    const struct Attention* attention;
    const struct Ttt* ttt;
};

// Chosen by what the processor offers, or by LOCKSTEP_INSTRUCTION_SET.
const VectorFunctions& vector_functions();

}  // namespace lockstep::kernels::cpu
