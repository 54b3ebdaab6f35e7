// The kernels' target: CUDA, or the emulation that runs the same sources on the CPU in tests. Every .cu accesses the
// hardware only through this header, hardware.hpp, shared_place.hpp and launch.hpp.
//
// Rules for kernels, which the emulation relies on:
// - Shared memory is dynamic, from shared_memory<T>(); its size is given at launch.
// - Barriers: __syncthreads(), __syncwarp(mask). Warp functions: __shfl_sync, __shfl_xor_sync, __shfl_down_sync,
//   __ballot_sync, __any_sync, __all_sync, always with the mask of the lanes that call.
// - Mathematics: expf, exp2f, logf, sqrtf, rsqrtf, tanhf, fmaxf, fminf, fmaf, fabsf; fast_exp2 and fast_reciprocal of
//   hardware.hpp.
// - Atomics on integers only.
#pragma once

#if defined(LOCKSTEP_CUDA_EMULATION)
#include "cuda_emulation/device.hpp"
#else
#include <cuda_runtime.h>
#endif
