// The types T of activations and weights in vector code: float, or bf16 as bits. Kernels widen to fp32 on load and
// round to nearest even, once, on store; compilers vectorize both.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct bf16 {
    std::uint16_t bits;
};

#ifdef LOCKSTEP_ISA
namespace LOCKSTEP_ISA {

static inline float to_float(float value) {
    return value;
}
static inline float to_float(bf16 value) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

template <class T>
static inline T from_float(float value);
template <>
inline float from_float<float>(float value) {
    return value;
}
template <>
inline bf16 from_float<bf16>(float value) {
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    // A NaN as in base/float16.hpp. Tested on the bits, or compilers would fold the test into the value's computation.
    const bool not_a_number = (word & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<std::uint16_t>(not_a_number ? 0x7fffu : rounded)};
}

}  // namespace LOCKSTEP_ISA
#endif

}  // namespace lockstep::kernels::cpu
