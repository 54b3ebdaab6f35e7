// Sums and maxima over a warp or block, in a fixed order.
#pragma once

#include "kernels/cuda/hardware.hpp"

namespace lockstep::kernels::cuda {

constexpr unsigned all_lanes = 0xffffffffu;
constexpr int warp_width = 32;

// Over each `lanes` neighbouring lanes, a power of two; all of these get the result.
template <int lanes>
__device__ inline float lanes_sum(float value) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    return value;
}

// Over all 32 lanes; all get the result.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    return value;
}
__device__ inline double warp_sum(double value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
    return value;
}
__device__ inline float warp_maximum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, distance));
    return value;
}

// Over all threads of a block of whole warps (up to 1024 threads); all get the result. `work` is shared memory of 32
// values, unused by others until every thread has returned. Contains barriers.
template <class Value>
__device__ inline Value block_sum(Value value, Value* work) {
    const int warp = static_cast<int>(threadIdx.x) / warp_width, lane = static_cast<int>(threadIdx.x) % warp_width;
    const int warps = static_cast<int>(blockDim.x) / warp_width;
    value = warp_sum(value);
    __syncthreads();  // an earlier use of `work` is over
    if (lane == 0) work[warp] = value;
    __syncthreads();
    return warp_sum(lane < warps ? work[lane] : Value(0));
}
__device__ inline float block_maximum(float value, float* work) {
    const int warp = static_cast<int>(threadIdx.x) / warp_width, lane = static_cast<int>(threadIdx.x) % warp_width;
    const int warps = static_cast<int>(blockDim.x) / warp_width;
    value = warp_maximum(value);
    __syncthreads();
    if (lane == 0) work[warp] = value;
    __syncthreads();
    return warp_maximum(lane < warps ? work[lane] : work[0]);
}

}  // namespace lockstep::kernels::cuda
