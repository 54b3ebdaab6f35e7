// Gradients of norms' weights and biases: blocks walk over the rows in order and accumulate; a second kernel adds the
// blocks' sums, in order. The number of blocks depends only on the shape.
#pragma once

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/norm.hpp"

namespace lockstep::kernels::cuda {

constexpr int norm_warps = 8;                   // per block
constexpr std::int64_t most_norm_blocks = 264;  // two per multiprocessor of an H100 or H200

// Floats of shared memory for store_norm_sums.
template <class T>
constexpr std::size_t norm_sums_work = norm_warps* warp_width* Vector16<T>::count;

// Writes the block's sums, of `vectors` vectors of `elements` columns per team member, to partials [blocks, sums ·
// width], dw's columns first (with_bias: 2 sums, else 1). A team has `members` threads; if it is a warp or a part of
// one, the teams' sums are added in order in `work`.
template <bool with_bias, int members, int vectors, int elements>
__device__ inline void store_norm_sums(float* partials, const float (&dweight)[vectors][elements],
                                       const float (&dbias)[vectors][elements], int width, float* work) {
    constexpr int sums = with_bias ? 2 : 1;
    const int member = static_cast<int>(threadIdx.x) % members, pieces = width / elements;
    float* partial = partials + static_cast<std::int64_t>(blockIdx.x) * sums * width;
    if constexpr (members > warp_width) {
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int piece = member + i * members;
            if (piece >= pieces) continue;
            store_floats(partial + piece * elements, dweight[i]);
            if constexpr (with_bias) store_floats(partial + width + piece * elements, dbias[i]);
        }
    } else {
        constexpr int columns = members * elements, teams = norm_warps * warp_width / members;
#pragma unroll
        for (int i = 0; i < vectors; ++i)
#pragma unroll
            for (int sum = 0; sum < sums; ++sum) {
                __syncthreads();  // what was read of `work` before has been read
                store_floats(work + static_cast<int>(threadIdx.x) * elements, sum == 0 ? dweight[i] : dbias[i]);
                __syncthreads();
                const int mine = static_cast<int>(threadIdx.x), column = i * columns + mine;
                if (mine >= columns || column >= width) continue;
                float total = 0;
#pragma unroll
                for (int other = 0; other < teams; ++other) total += work[other * columns + mine];
                partial[sum * width + column] = total;
            }
    }
}

struct NormGradientPlace {  // of a column of partial sums
    float *dweight, *dbias;
    std::int64_t width;
    __device__ float* operator()(std::int64_t column) const {
        return column < width ? dweight + column : dbias + (column - width);
    }
};

}  // namespace lockstep::kernels::cuda
