// What a kernel's source sees in place of CUDA's built-ins (kernels/cuda/platform.hpp includes it in tests).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/vector_types.hpp"
#include "cuda_emulation/warp.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

// Of the thread that runs now.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
constexpr int warpSize = 32;

inline void __syncthreads() {
    lockstep::emulation::block_barrier(lockstep::emulation::BarrierKind::plain, 0);
}
inline int __syncthreads_or(int predicate) {
    return lockstep::emulation::block_barrier(lockstep::emulation::BarrierKind::any, predicate);
}
inline int __syncthreads_and(int predicate) {
    return lockstep::emulation::block_barrier(lockstep::emulation::BarrierKind::all, predicate);
}
inline int __syncthreads_count(int predicate) {
    return lockstep::emulation::block_barrier(lockstep::emulation::BarrierKind::count, predicate);
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    lockstep::emulation::warp_collective(lockstep::emulation::syncwarp, mask, nullptr);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    const auto lane = static_cast<int>(lockstep::emulation::lane());
    return lockstep::emulation::shuffle(lockstep::emulation::shfl, mask, value,
                                        (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
    const auto lane = static_cast<int>(lockstep::emulation::lane());
    const int source = lane ^ lane_mask;
    return lockstep::emulation::shuffle(lockstep::emulation::shfl_xor, mask, value,
                                        source > (lane | (width - 1)) ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const auto lane = static_cast<int>(lockstep::emulation::lane());
    const int source = lane + static_cast<int>(delta);
    return lockstep::emulation::shuffle(lockstep::emulation::shfl_down, mask, value,
                                        source > (lane | (width - 1)) ? lane : source);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const auto lane = static_cast<int>(lockstep::emulation::lane());
    const int source = lane - static_cast<int>(delta);
    return lockstep::emulation::shuffle(lockstep::emulation::shfl_up, mask, value,
                                        source < (lane & ~(width - 1)) ? lane : source);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return lockstep::emulation::vote(lockstep::emulation::ballot, mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate) {
    return lockstep::emulation::vote(lockstep::emulation::any, mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
    return lockstep::emulation::vote(lockstep::emulation::all, mask, predicate) == mask;
}

// A block's threads share one OS thread and switch only at barriers and warp functions: plain reads and writes are
// atomic.
template <class T>
concept AtomicInteger = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <AtomicInteger T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = static_cast<T>(old + value);
    return old;
}
template <AtomicInteger T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    if (value > old) *address = value;
    return old;
}
template <AtomicInteger T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    if (value < old) *address = value;
    return old;
}
template <AtomicInteger T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = old | value;
    return old;
}
template <AtomicInteger T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = value;
    return old;
}
template <AtomicInteger T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
    const T old = *address;
    if (old == compare) *address = value;
    return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline unsigned __float_as_uint(float x) {
    return __builtin_bit_cast(unsigned, x);
}
inline float __uint_as_float(unsigned x) {
    return __builtin_bit_cast(float, x);
}
inline int __float_as_int(float x) {
    return __builtin_bit_cast(int, x);
}
inline float __int_as_float(int x) {
    return __builtin_bit_cast(float, x);
}

inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
template <class T>
concept Number = std::is_arithmetic_v<T>;
template <Number T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <Number T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}

template <class T>
T __ldg(const T* from) {
    return *from;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
void __stcs(T* to, const std::type_identity_t<T>& value) {
    *to = value;
}
template <class T>
void __stcg(T* to, const std::type_identity_t<T>& value) {
    *to = value;
}
