// fp16 and bf16 as bits, to and from fp32; rounding.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>

#include "ptx/instruction.hpp"

namespace lockstep::ptx {

inline float single_of_half(std::uint16_t half) {
    const std::uint32_t exponent_and_fraction = half & 0x7fffu;
    // Exact, subnormal halves too; infinity and NaN keep their exponent of ones.
    const float scaled = std::bit_cast<float>(exponent_and_fraction << 13) * 0x1p112f;
    const std::uint32_t special = exponent_and_fraction >= 0x7c00u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | (half & 0x8000u) << 16);
}

inline float single_of_brain(std::uint16_t brain) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16);
}

inline std::uint16_t brain_of_single(float value, Rounding rounding = Rounding::nearest) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t up = rounding == Rounding::nearest ? 0x7fffu + (bits >> 16 & 1) : 0u;
    return static_cast<std::uint16_t>(nan ? 0x7fffu : (bits + up) >> 16);
}

inline std::uint16_t half_of_single(float value, Rounding rounding = Rounding::nearest) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size == 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    const bool nearest = rounding == Rounding::nearest;
    std::uint32_t result = 0;
    if (size >= 0x38800000u) {  // normal
        result = (size - 0x38000000u + (nearest ? 0xfffu + (size >> 13 & 1) : 0u)) >> 13;
        if (result >= 0x7c00u) result = nearest ? 0x7c00u : 0x7bffu;
    } else {  // a multiple of 2^-24
        const float units = std::bit_cast<float>(size) * 0x1p24f;
        result = static_cast<std::uint32_t>(nearest ? std::nearbyint(units) : std::trunc(units));
    }
    return static_cast<std::uint16_t>(sign | result);
}

// As std::fesetround takes it.
inline int host_rounding(Rounding rounding) {
    switch (rounding) {
        case Rounding::zero:
            return FE_TOWARDZERO;
        case Rounding::down:
            return FE_DOWNWARD;
        case Rounding::up:
            return FE_UPWARD;
        default:
            return FE_TONEAREST;
    }
}

}  // namespace lockstep::ptx
