// Products of small tiles by one warp, on tensor cores. attention_tile.hpp, ttt_linear_chunk.hpp and ttt_mlp_tile.hpp
// have further ones, with addresses or operands of their own. Every function is warp-wide. T is bf16 or fp16 (mma.sync,
// exact products, fp32 sums) or float (plain fp32 multiply-adds in the lanes that own the sums: slow, and exact enough
// for 1e-6).
//
// Tiles in shared memory are row-major with a stride in elements; for 16-bit types a row must start 16-byte aligned
// (stride a multiple of 8), and a stride that is 8 more than a multiple of 64 avoids bank conflicts. `rows × columns`
// below are counted in elements; `16·K` columns are K steps of the hardware.
#pragma once

#include <utility>

#include "kernels/cuda/hardware.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {

__device__ inline int lane_index() {
    return static_cast<int>(threadIdx.x) % warp_width;
}

template <class T>
__device__ constexpr int bytes_of(int elements) {
    return elements * static_cast<int>(sizeof(T));
}

// Calls body(std::integral_constant<int, 0>()) to that of count - 1, each with code of its own.
template <int count, class Body>
__device__ inline void unrolled(Body&& body) {
    [&]<int... i>(std::integer_sequence<int, i...>) {
        (body(std::integral_constant<int, i>{}), ...);
    }
    (std::make_integer_sequence<int, count>{});
}

// A 16 × 8N tile of fp32 sums. Lane l, with g = l / 4, t = l % 4, holds of column block n (8 columns):
// at[n][0] (g, 2t), at[n][1] (g, 2t+1), at[n][2] (g+8, 2t), at[n][3] (g+8, 2t+1).
template <int N>
struct Sums {
    float at[N][4];
    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) at[n][i] = 0;
    }
    // Row (0..15) and column (0..8N-1) of at[n][i] in this lane.
    __device__ static int row(int i) {
        return lane_index() / 4 + (i >= 2 ? 8 : 0);
    }
    __device__ static int column(int n, int i) {
        return 8 * n + 2 * (lane_index() % 4) + (i & 1);
    }
};

// The left operand, 16 × 16K, in registers.
template <class T, int K>
struct Left {
    unsigned at[K][4];
};
template <int K>
struct Left<float, K> {
    Sums<2 * K> at;
};

// From shared memory with the tile [16][16K], or its transpose [16K][16].
template <class T, int K>
__device__ inline void load_left(Left<T, K>& left, const T* tile, int stride) {
    const int lane = lane_index();
    const T* row = tile + (lane % 16) * stride + (lane / 16) * 8;
#pragma unroll
    for (int k = 0; k < K; ++k) load_matrix_x4(left.at[k], row, bytes_of<T>(16 * k));
}
template <int K>
__device__ inline void load_left(Left<float, K>& left, const float* tile, int stride) {
#pragma unroll
    for (int n = 0; n < 2 * K; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) left.at.at[n][i] = tile[Sums<2 * K>::row(i) * stride + Sums<2 * K>::column(n, i)];
}
template <class T, int K>
__device__ inline void load_left_transposed(Left<T, K>& left, const T* tile, int stride) {
    const int lane = lane_index();
    // Matrices in the order (rows 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15).
    const T* row = tile + (lane % 8 + (lane / 16) * 8) * stride + ((lane / 8) % 2) * 8;
#pragma unroll
    for (int k = 0; k < K; ++k) load_matrix_x4_transposed(left.at[k], row, bytes_of<T>(16 * k * stride));
}
template <int K>
__device__ inline void load_left_transposed(Left<float, K>& left, const float* tile, int stride) {
#pragma unroll
    for (int n = 0; n < 2 * K; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) left.at.at[n][i] = tile[Sums<2 * K>::column(n, i) * stride + Sums<2 * K>::row(i)];
}

// Sums of one product, rounded to T, as the left operand of the next, without shared memory.
template <class T, int K>
__device__ inline void to_left(Left<T, K>& left, const Sums<2 * K>& sums) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        left.at[k][0] = pack_pair<T>(sums.at[2 * k][0], sums.at[2 * k][1]);
        left.at[k][1] = pack_pair<T>(sums.at[2 * k][2], sums.at[2 * k][3]);
        left.at[k][2] = pack_pair<T>(sums.at[2 * k + 1][0], sums.at[2 * k + 1][1]);
        left.at[k][3] = pack_pair<T>(sums.at[2 * k + 1][2], sums.at[2 * k + 1][3]);
    }
}
template <int K>
__device__ inline void to_left(Left<float, K>& left, const Sums<2 * K>& sums) {
    left.at = sums;
}

// The layout of the right operand [16K, 8N] in shared memory: rows of k ([16K][8N]), or transposed, rows of n
// ([8N][16K]), like attention's keys.
enum class Right { rows_of_k, rows_of_n };

namespace detail {

// The address this lane gives to ldmatrix for two column blocks of 8 of one k step of 16.
template <Right layout, class T>
__device__ inline const T* right_pair_row(const T* tile, int stride) {
    const int lane = lane_index();
    return layout == Right::rows_of_n ? tile + (lane % 8 + (lane / 16) * 8) * stride + ((lane / 8) % 2) * 8
                                      : tile + (lane % 16) * stride + (lane / 16) * 8;
}

template <Right layout, class T>
__device__ inline void load_right_pair(unsigned (&low)[2], unsigned (&high)[2], const T* row, int bytes) {
    unsigned r[4];  // low: columns 0-7, high: 8-15
    if constexpr (layout == Right::rows_of_n)
        load_matrix_x4(r, row, bytes);
    else
        load_matrix_x4_transposed(r, row, bytes);
    low[0] = r[0];
    low[1] = r[1];
    high[0] = r[2];
    high[1] = r[3];
}

}  // namespace detail

// sums [16, 8N] += left [16, 16K] right [16K, 8N].
template <Right layout, class T, int K, int N>
__device__ inline void multiply(Sums<N>& sums, const Left<T, K>& left, const T* right, int stride) {
    static_assert(N % 2 == 0);
    const auto at = [&](int k, int n) {
        return bytes_of<T>(layout == Right::rows_of_n ? 8 * n * stride + 16 * k : 16 * k * stride + 8 * n);
    };
    const T* const pairs = detail::right_pair_row<layout>(right, stride);
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned low[2], high[2];
            detail::load_right_pair<layout>(low, high, pairs, at(k, n));
            mma_16x8x16(sums.at[n], left.at[k], low, T{});
            mma_16x8x16(sums.at[n + 1], left.at[k], high, T{});
        }
    }
}
template <Right layout, int K, int N>
__device__ inline void multiply(Sums<N>& sums, const Left<float, K>& left, const float* right, int stride) {
    const int lane = lane_index(), quad = lane & ~3;
#pragma unroll 1
    for (int block = 0; block < 2 * K; ++block) {
        float a[4] = {};
#pragma unroll
        for (int b = 0; b < 2 * K; ++b)  // a non-constant `block` would force the registers into memory
            if (b == block)
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i] = left.at.at[b][i];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float upper = __shfl_sync(all_lanes, a[j & 1], quad + j / 2);
            const float lower = __shfl_sync(all_lanes, a[2 + (j & 1)], quad + j / 2);
            const int k = 8 * block + j;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int column = Sums<N>::column(n, 0);
                const float b0 = layout == Right::rows_of_n ? right[column * stride + k] : right[k * stride + column];
                const float b1 =
                    layout == Right::rows_of_n ? right[(column + 1) * stride + k] : right[k * stride + column + 1];
                sums.at[n][0] = fmaf(upper, b0, sums.at[n][0]);
                sums.at[n][1] = fmaf(upper, b1, sums.at[n][1]);
                sums.at[n][2] = fmaf(lower, b0, sums.at[n][2]);
                sums.at[n][3] = fmaf(lower, b1, sums.at[n][3]);
            }
        }
    }
}

// Rounded to T into shared or global memory, rows [0, rows) only; `to` is element (0, 0).
template <class T, int N>
__device__ inline void store_sums(T* to, int stride, const Sums<N>& sums, int rows = 16) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (Sums<N>::row(i) < rows)
                to[Sums<N>::row(i) * stride + Sums<N>::column(n, i)] = from_float<T>(sums.at[n][i]);
}

// All 16 rows to shared memory, 16-bit elements in pairs: `to` is 4-byte aligned and `stride` even.
template <class T, int N>
__device__ inline void store_sums_in_pairs(T* to, int stride, const Sums<N>& sums) {
    if constexpr (sizeof(T) == 4) {
        store_sums(to, stride, sums);
    } else {
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                *reinterpret_cast<std::uint32_t*>(to + Sums<N>::row(i) * stride + Sums<N>::column(n, i)) =
                    pack_pair<T>(sums.at[n][i], sums.at[n][i + 1]);
    }
}

}  // namespace lockstep::kernels::cuda
