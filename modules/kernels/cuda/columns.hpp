// Sums over rows, for gradients of what all rows share: each block writes a row of partial sums, which are added in
// order. Which rows a block takes depends only on the shape, so results are reproducible on any GPU.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {

constexpr int column_threads = 256;

// A block of column_threads threads as `lanes` (a power of two, at most 32) packs of columns by column_threads / lanes
// rows, and a grid of such blocks.
struct ColumnGrid {
    int lanes, row_lanes;
    unsigned column_blocks, row_blocks;
};

// For rows of `packs` packs of columns; `rows_each`: fewest rows per thread, if there are that many.
inline ColumnGrid column_grid(std::int64_t rows, std::int64_t packs, std::int64_t rows_each) {
    constexpr std::int64_t enough_blocks = 792;  // 6 on each of 132 multiprocessors
    ColumnGrid grid{1, column_threads, 1, 1};
    while (grid.lanes < warp_width && grid.lanes < packs) grid.lanes *= 2;
    grid.row_lanes = column_threads / grid.lanes;
    grid.column_blocks = blocks_for(packs, grid.lanes);
    grid.row_blocks = static_cast<unsigned>(
        std::clamp<std::int64_t>(blocks_for(rows, grid.row_lanes * rows_each), 1,
                                 std::max<std::int64_t>(enough_blocks / std::max(1u, grid.column_blocks), 1)));
    return grid;
}

// The block's sums of `values` neighbouring columns per thread, added over the row lanes in order, to[c] for c in [0,
// limit). `work`: column_threads · values floats. Contains a barrier; once per kernel.
template <int values>
__device__ inline void store_column_sums(float* to, std::int64_t limit, const float (&sums)[values], int lanes,
                                         float* work) {
    const int thread = static_cast<int>(threadIdx.x), columns = lanes * values;
#pragma unroll
    for (int i = 0; i < values; ++i) work[thread * values + i] = sums[i];
    __syncthreads();
    for (int column = thread; column < columns && column < limit; column += column_threads) {
        float total = 0;
        for (int row = 0; row < column_threads / lanes; ++row) total += work[row * columns + column];
        to[column] = total;
    }
}

constexpr unsigned partial_lanes = 32;  // of columns, and of rows

// *place(c) += the sum of column c of partials [rows, width], unless place(c) is null.
template <class Place>
__global__ void __launch_bounds__(partial_lanes* partial_lanes)
    add_partials_kernel(Place place, const float* __restrict__ partials, std::int64_t rows, std::int64_t width) {
    float* const work = shared_memory<float>();
    const unsigned lane = threadIdx.x % partial_lanes, row_lane = threadIdx.x / partial_lanes;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * partial_lanes + lane;
    float sum = 0;
    if (column < width) {
#pragma unroll 8
        for (std::int64_t row = row_lane; row < rows; row += partial_lanes) sum += partials[row * width + column];
    }
    work[threadIdx.x] = sum;
    __syncthreads();
    if (row_lane != 0 || column >= width) return;
    float total = 0;
#pragma unroll
    for (unsigned i = 0; i < partial_lanes; ++i) total += work[i * partial_lanes + lane];
    if (float* const to = place(column)) *to += total;
}

template <class Place>
void add_partials(const char* name, cudaStream_t stream, Place place, const float* partials, std::int64_t rows,
                  std::int64_t width) {
    launch({name, dim3(blocks_for(width, partial_lanes)), partial_lanes * partial_lanes,
            partial_lanes * partial_lanes * sizeof(float), stream},
           add_partials_kernel<Place>, place, partials, rows, width);
}

}  // namespace lockstep::kernels::cuda
