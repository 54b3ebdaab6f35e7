// Shared by the attention kernels: head widths in shared memory, tiles between global and shared memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_limits.hpp"
#include "kernels/backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/tile.hpp"

namespace lockstep::kernels::cuda {

// Heads of up to `width_` columns; columns beyond a head's own are zeros in shared memory. exact_: the head has all of
// them and 16-byte aligned rows of 16-bit elements, as the tuned kernels require.
template <class Element, int width_, bool exact_>
struct HeadWidth {
    using T = Element;
    static constexpr int width = width_, vector = 16 / static_cast<int>(sizeof(T));
    static constexpr bool exact = exact_;
    static constexpr int stride = width + vector;  // of a row in shared memory: no ldmatrix bank conflicts
    static constexpr int row_bytes = stride * static_cast<int>(sizeof(T));
};

struct AttentionSizes {
    int query_length, key_length, heads, group, width;  // group: query heads per key head
    bool vectors;                                       // rows of heads are 16-byte aligned
    float scale, scale_log2;                            // 1/sqrt(f), and times log2(e)

    // Offsets within a tile are 32-bit, to save registers.
    __device__ int query_stride() const { return heads * width; }
    __device__ int key_stride() const { return heads / group * width; }
    // The first element of a head of a sequence, in queries and in keys, and its index in log_sum_exp.
    __device__ std::int64_t query_head(int sequence, int head) const {
        return static_cast<std::int64_t>(sequence) * query_length * query_stride() +
               static_cast<std::int64_t>(head) * width;
    }
    __device__ std::int64_t key_head(int sequence, int head) const {
        return static_cast<std::int64_t>(sequence) * key_length * key_stride() +
               static_cast<std::int64_t>(head) * width;
    }
    __device__ std::int64_t row_head(int sequence, int head) const {
        return (static_cast<std::int64_t>(sequence) * heads + head) * query_length;
    }
};

constexpr float log2_of_e = 1.44269504088896340736f, log_of_2 = 0.69314718055994530942f;

// Copies rows × W::width elements, `row_stride` elements apart, from global to shared memory by all `threads`; zeros in
// rows from `valid` on and in columns beyond the head's width. Ready after copy_async_wait and a barrier.
template <class W, int rows, int threads>
__device__ inline void load_rows(typename W::T* to, const typename W::T* from, int row_stride, int valid,
                                 const AttentionSizes& sizes) {
    using T = typename W::T;
    constexpr int per_row = W::width / W::vector;
    if constexpr (W::exact) {
        // A thread keeps to its columns and steps through the rows: few addresses.
        constexpr int side = per_row & -per_row, step = threads / side;  // 8, 4 and 16 threads side by side
        static_assert(rows % step == 0);
        const int row = static_cast<int>(threadIdx.x) / side, column = static_cast<int>(threadIdx.x) % side * W::vector;
        to += row * W::stride + column;
        from += row * row_stride + column;
#pragma unroll
        for (int n = 0; n < rows; n += step) {
#pragma unroll
            for (int c = 0; c < W::width; c += side * W::vector)
                copy_async_16(to + n * W::stride + c, from + c, row + n < valid);
            from += step * row_stride;
        }
    } else if (sizes.vectors) {
#pragma unroll 1
        for (int index = static_cast<int>(threadIdx.x); index < rows * per_row; index += threads) {
            const int row = index / per_row, column = index % per_row * W::vector;
            copy_async_16(to + row * W::stride + column, from + row * row_stride + column,
                          row < valid && column < sizes.width);
        }
    } else {
#pragma unroll 1
        for (int index = static_cast<int>(threadIdx.x); index < rows * W::width; index += threads) {
            const int row = index / W::width, column = index % W::width;
            to[row * W::stride + column] = row < valid && column < sizes.width ? from[row * row_stride + column] : T{};
        }
    }
}

// Copies a warp's own rows of shared memory to global memory, the first `valid` of them.
template <class W, int rows>
__device__ inline void store_warp_rows(typename W::T* to, const typename W::T* from, int row_stride, int valid,
                                       const AttentionSizes& sizes) {
    if (W::exact || sizes.vectors) {
        constexpr int per_row = W::width / W::vector;
#pragma unroll 4
        for (int index = lane_index(); index < rows * per_row; index += warp_width) {
            const int row = index / per_row, column = index % per_row * W::vector;
            if (row < valid && (W::exact || column < sizes.width))
                store16(to + row * row_stride + column, load16(from + row * W::stride + column));
        }
    } else {
#pragma unroll 1
        for (int index = lane_index(); index < rows * W::width; index += warp_width) {
            const int row = index / W::width, column = index % W::width;
            if (row < valid && column < sizes.width) to[row * row_stride + column] = from[row * W::stride + column];
        }
    }
}

// sums[m] += rows [16m, 16m + 16) of `left` times the transpose of `right`, over a head's width; both in shared memory.
template <class W, int N, int M>
__device__ inline void multiply_rows(Sums<N> (&sums)[M], const typename W::T* left, const typename W::T* right) {
#pragma unroll
    for (int k = 0; k < W::width / 16; ++k) {
        Left<typename W::T, 1> part[M];
#pragma unroll
        for (int m = 0; m < M; ++m) load_left(part[m], left + 16 * m * W::stride + 16 * k, W::stride);
        multiply<Right::rows_of_n>(sums, part, right + 16 * k, W::stride);
    }
}

// A warp's sums times their rows' `factor(m, i)`, rounded, to global memory through `work`, the warp's own rows of
// shared memory.
template <class W, int N, int M, class Factor>
__device__ inline void store_warp_sums(typename W::T* to, typename W::T* work, Sums<N> (&sums)[M], Factor&& factor,
                                       int row_stride, int valid, const AttentionSizes& sizes) {
    __syncwarp(all_lanes);
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m].at[n][i] *= factor(m, i);
        store_sums_in_pairs(work + 16 * m * W::stride, W::stride, sums[m]);
    }
    __syncwarp(all_lanes);
    store_warp_rows<W, 16 * M>(to, work, row_stride, valid, sizes);
}

// Shape checks common to forward and backward, and the kernels' view of the shapes.
inline AttentionSizes attention_sizes(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& y, const Tensor& log_sum_exp) {
    LOCKSTEP_ASSERT(shape.key_heads > 0 && shape.heads % shape.key_heads == 0 && shape.head_width > 0);
    LOCKSTEP_ASSERT(shape.key_length >= shape.query_length && shape.key_length < (std::int64_t{1} << 30));
    LOCKSTEP_ASSERT(shape.heads * shape.head_width < (std::int64_t{1} << 23));  // times the rows of a tile: 32 bit
    const std::int64_t queries = shape.batch * shape.query_length * shape.heads * shape.head_width;
    const std::int64_t keys = shape.batch * shape.key_length * shape.key_heads * shape.head_width;
    LOCKSTEP_ASSERT(q.count() == queries && y.count() == queries && k.count() == keys && v.count() == keys);
    LOCKSTEP_ASSERT(k.type() == q.type() && v.type() == q.type() && y.type() == q.type());
    LOCKSTEP_ASSERT(log_sum_exp.type() == Type::fp32 &&
                    log_sum_exp.count() == shape.batch * shape.heads * shape.query_length);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_width));
    return {static_cast<int>(shape.query_length),
            static_cast<int>(shape.key_length),
            static_cast<int>(shape.heads),
            static_cast<int>(shape.heads / shape.key_heads),
            static_cast<int>(shape.head_width),
            shape.head_width * static_cast<std::int64_t>(type_bytes(q.type())) % 16 == 0,
            scale,
            scale * log2_of_e};
}

inline bool aligned_16(const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
}

// Calls function(HeadWidth<T, …>()) for the kernels of this head width.
template <class T, class Function>
void with_head_width(const AttentionSizes& sizes, Function&& function) {
    if constexpr (sizeof(T) == 2)
        if (sizes.vectors) {
            if (sizes.width == 64) return function(HeadWidth<T, 64, true>{});
            if (sizes.width == 96) return function(HeadWidth<T, 96, true>{});
            if (sizes.width == 128) return function(HeadWidth<T, 128, true>{});
        }
    if (sizes.width <= 32) return function(HeadWidth<T, 32, false>{});
    if (sizes.width <= 64) return function(HeadWidth<T, 64, false>{});
    if (sizes.width <= 128) return function(HeadWidth<T, 128, false>{});
    if (sizes.width <= widest_head_on_gpu) return function(HeadWidth<T, widest_head_on_gpu, false>{});
    throw usage_error("attention on a GPU takes heads of up to {} columns, these have {}: use more heads",
                      widest_head_on_gpu, sizes.width);
}

// A one-dimensional grid of `count` blocks.
inline dim3 grid_of(std::int64_t count) {
    LOCKSTEP_ASSERT(count < (std::int64_t{1} << 31));
    return dim3(static_cast<unsigned>(count), 1, 1);
}

}  // namespace lockstep::kernels::cuda
