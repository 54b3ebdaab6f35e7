// The loops that must run in vector registers. Each file of this folder is compiled once per instruction set, in its
// own namespace, and reached through a table of functions that is chosen at run time (the whole table, once per
// backend).
//
// A rule keeps this safe: these files hold plain functions over pointers and include only <cstdint>, <math.h> and
// headers of this folder, whose functions are all `static inline` in namespace LOCKSTEP_ISA. A template or inline
// function of the standard library (std::sqrt(float) is one) would be compiled with wide instructions and might then be
// linked into code that runs on an older processor.
//
// To add a family: vector/NAME.hpp declares a struct of function pointers, vector/NAME.cpp defines NAME_functions in
// namespace LOCKSTEP_ISA, and both are named here, in table.cpp and in modules/kernels/CMakeLists.txt.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct Elementwise;
struct Norm;
struct Attention;
struct Ttt;

struct VectorFunctions {
    const char* name;
    const Elementwise* elementwise;
    const Norm* norm;
    const Attention* attention;
    const Ttt* ttt;
};

// The widest set that the processor offers, or the one that LOCKSTEP_INSTRUCTION_SET names (read at every call). A name
// that is unknown, or a set that the processor lacks, is a usage error.
const VectorFunctions& vector_functions();

#ifdef LOCKSTEP_ISA
namespace LOCKSTEP_ISA {
extern const Elementwise elementwise_functions;
extern const Norm norm_functions;
extern const Attention attention_functions;
extern const Ttt ttt_functions;
}  // namespace LOCKSTEP_ISA
#endif

}  // namespace lockstep::kernels::cpu
