// The loops that must run in vector registers. Each file of this folder is compiled once per instruction set, in its
// own namespace, and called through a table of functions selected at run time (once per backend).
//
// For safety, these files hold plain functions over pointers and include only <cstdint>, <math.h> and headers of this
// folder, whose functions are all `static inline` in namespace LOCKSTEP_ISA. A template or inline function of the
// standard library (std::sqrt(float) is one) would be compiled with wide instructions and might be linked into code
// that runs on an older processor.
//
// To add a family: vector/NAME.hpp declares a struct of function pointers, a template on the type T of activations;
// vector/NAME.cpp defines NAME_fp32 and NAME_bf16 in namespace LOCKSTEP_ISA, and they are named here, in table.cpp and
// in modules/kernels/CMakeLists.txt.
#pragma once

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

struct TileFunctions;
struct Flat;
template <class T>
struct Elementwise;
template <class T>
struct Norm;
template <class T>
struct Attention;
template <class T>
struct Ttt;
template <class T>
struct Delta;

// The families for activations of type T.
template <class T>
struct Families {
    const Elementwise<T>* elementwise;
    const Norm<T>* norm;
    const Attention<T>* attention;
    const Ttt<T>* ttt;
    const Delta<T>* delta;
};

struct VectorFunctions {
    const char* name;
    const Flat* flat;
    Families<float> fp32;
    Families<cpu::bf16> bf16;
    const TileFunctions* tiles = nullptr;  // bf16/tile_functions.hpp; null: products are left to oneDNN

    template <class T>
    const Families<T>& of() const;
};

// The widest set that the processor supports, or the one named by LOCKSTEP_INSTRUCTION_SET (read at every call). An
// unknown or unsupported set is a usage error.
const VectorFunctions& vector_functions();

#ifndef LOCKSTEP_ISA  // for the callers
template <>
inline const Families<float>& VectorFunctions::of<float>() const {
    return fp32;
}
template <>
inline const Families<bf16>& VectorFunctions::of<bf16>() const {
    return bf16;
}
#else
namespace LOCKSTEP_ISA {
extern const Flat flat_functions;
extern const Elementwise<float> elementwise_fp32;
extern const Elementwise<bf16> elementwise_bf16;
extern const Norm<float> norm_fp32;
extern const Norm<bf16> norm_bf16;
extern const Attention<float> attention_fp32;
extern const Attention<bf16> attention_bf16;
extern const Ttt<float> ttt_fp32;
extern const Ttt<bf16> ttt_bf16;
extern const Delta<float> delta_fp32;
extern const Delta<bf16> delta_bf16;
}  // namespace LOCKSTEP_ISA
#endif

}  // namespace lockstep::kernels::cpu
