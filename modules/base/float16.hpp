// bf16 (8 exponent bits) and fp16 (IEEE binary16, 5 bits) as bits. Conversion from fp32 rounds to nearest even; NaN
// becomes 0x7fff, as on NVIDIA hardware.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline std::uint16_t bf16_bits(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(0x7fffu);
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

inline float bf16_value(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t fp16_bits(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(0x7fffu);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to inf
    if (magnitude < 0x38800000u) {                                                    // subnormal: units of 2^-24
        if (magnitude < 0x33000000u) return sign;
        const std::uint32_t shift = 126u - (magnitude >> 23), mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        const std::uint32_t half = 1u << (shift - 1), kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u);
        return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u)));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float fp16_value(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
    if (exponent == 0) {
        const float value = static_cast<float>(mantissa) * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace lockstep
