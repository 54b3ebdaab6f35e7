// Element types of CUDA kernels. bf16 and fp16 are plain 16-bit values, so that the kernels compile without the CUDA
// toolkit (tests/cuda_emulation); conversions round to nearest even everywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/float16.hpp"
#include "kernels/cuda/platform.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace lockstep::kernels::cuda {

struct bf16 {
    std::uint16_t bits;
};
struct fp16 {
    std::uint16_t bits;
};

__host__ __device__ inline float to_float(float value) {
    return value;
}
__host__ __device__ inline float to_float(bf16 value) {
    const std::uint32_t word = static_cast<std::uint32_t>(value.bits) << 16;
    return std::bit_cast<float>(word);
}
__host__ __device__ inline float to_float(fp16 value) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(value.bits));
#else
    return lockstep::fp16_value(value.bits);
#endif
}

// from_float<T>(x): x rounded to T.
template <class T>
__host__ __device__ inline T from_float(float value);
template <>
__host__ __device__ inline float from_float<float>(float value) {
    return value;
}
template <>
__host__ __device__ inline bf16 from_float<bf16>(float value) {
#if defined(__CUDA_ARCH__)
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    return {lockstep::bf16_bits(value)};
#endif
}
template <>
__host__ __device__ inline fp16 from_float<fp16>(float value) {
#if defined(__CUDA_ARCH__)
    return {__half_as_ushort(__float2half_rn(value))};
#else
    return {lockstep::fp16_bits(value)};
#endif
}

// Two 16-bit elements in one register, the first in the low half: one instruction on the GPU.
template <class T>
__device__ inline std::uint32_t pack_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
    std::uint32_t pair;  // by hand: the toolkit's functions take the register apart and put it together again
    if constexpr (std::is_same_v<T, bf16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return static_cast<std::uint32_t>(from_float<T>(low).bits) | static_cast<std::uint32_t>(from_float<T>(high).bits)
                                                                     << 16;
#endif
}
template <class T>
__device__ inline float unpack_low(std::uint32_t pair) {
    if constexpr (std::is_same_v<T, bf16>)
        return std::bit_cast<float>(pair << 16);
    else
        return to_float(T{static_cast<std::uint16_t>(pair & 0xffffu)});
}
template <class T>
__device__ inline float unpack_high(std::uint32_t pair) {
    if constexpr (std::is_same_v<T, bf16>)
        return std::bit_cast<float>(pair & 0xffff0000u);
    else
        return to_float(T{static_cast<std::uint16_t>(pair >> 16)});
}

// The elements of one 16-byte access: `load16(p)` for 16-byte aligned p.
template <class T>
struct alignas(16) Vector16 {
    static constexpr int count = 16 / static_cast<int>(sizeof(T));
    T at[16 / sizeof(T)];
};
template <class T>
__device__ inline Vector16<T> load16(const T* from) {
    return *reinterpret_cast<const Vector16<T>*>(from);
}
template <class T>
__device__ inline void store16(T* to, const Vector16<T>& value) {
    *reinterpret_cast<Vector16<T>*>(to) = value;
}

}  // namespace lockstep::kernels::cuda
