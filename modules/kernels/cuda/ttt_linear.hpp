// Shared by TTT-Linear's forward and backward kernels. A block of F/16 warps works on one head of one sequence, F ≥ f a
// multiple of 16; warp w holds columns 16w … 16w + 15 of every 16-token tile, and rows 16w … of Wᵀ of the state W [f,
// f], in fp32 registers. A mini-batch has at most 16 tokens. Padding is zeros; nonexistent tokens have λ = 0.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/cuda/ttt.hpp"
#include "kernels/cuda/ttt_layer.hpp"

namespace lockstep::kernels::cuda {

// T: of q, k, v, y. Products of 16-bit types have bf16 operands, also for fp16: dW exceeds the range of fp16.
template <class T, int F>
struct TttLinear {
    using Operand = std::conditional_t<std::is_same_v<T, float>, float, bf16>;
    static constexpr bool registers_to_operand = !std::is_same_v<T, float>;  // a right operand needs no shared memory
    static constexpr int warps = F / 16, threads = 2 * F;
    static constexpr int steps = F / 16, blocks = F / 8;                       // of 16 and 8 columns
    static constexpr int stride = F + 16 / static_cast<int>(sizeof(Operand));  // of tiles: no bank conflicts
    static constexpr int tile = 16 * stride, square = F * stride;              // elements
    static constexpr int state_floats = F * F + F;                             // of a saved state
};

// Rows of a head.
struct HeadRows {
    int stride;    // between tokens
    int width;     // f
    bool aligned;  // rows of the head start and end 16-byte aligned
};

// Loads the rows of a tile into shared memory, zeros out of range. Copies may be asynchronous: complete after
// copy_async_wait and a barrier.
template <class T, int F>
__device__ inline void load_tile(typename TttLinear<T, F>::Operand* to, const T* from, const HeadRows& where,
                                 int rows) {
    using Operand = typename TttLinear<T, F>::Operand;
    constexpr int threads = TttLinear<T, F>::threads, stride = TttLinear<T, F>::stride;
    constexpr int each = Vector16<T>::count, row_chunks = F / each;
    const int thread = static_cast<int>(threadIdx.x), from_stride = where.stride;
    if (where.aligned) {
#pragma unroll
        for (int chunk = thread; chunk < 16 * row_chunks; chunk += threads) {
            const int row = chunk / row_chunks, column = chunk % row_chunks * each;
            const bool valid = row < rows && column < where.width;
            const T* const source = valid ? from + row * from_stride + column : from;
            if constexpr (std::is_same_v<T, Operand>) {
                copy_async_16(to + row * stride + column, source, valid);
            } else {
                Vector16<Operand> converted{};
                if (valid) {
                    const Vector16<T> values = load16(source);
#pragma unroll
                    for (int i = 0; i < each; ++i) converted.at[i] = from_float<Operand>(to_float(values.at[i]));
                }
                store16(to + row * stride + column, converted);
            }
        }
        return;
    }
    for (int i = thread; i < 16 * F; i += threads) {
        const int row = i / F, column = i % F;
        const bool valid = row < rows && column < where.width;
        to[row * stride + column] = from_float<Operand>(valid ? to_float(from[row * from_stride + column]) : 0.0f);
    }
}

template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T at[2];
};

// This warp's columns of a tile: from shared memory if that has the exact values, else from global memory.
template <class T, int F>
__device__ inline Sums<2> tile_values(const typename TttLinear<T, F>::Operand* tile, const T* from,
                                      const HeadRows& where, int rows, int first_column) {
    using Operand = typename TttLinear<T, F>::Operand;
    Sums<2> values;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int row = Sums<2>::row(i), column = first_column + Sums<2>::column(n, i);
            if constexpr (std::is_same_v<T, Operand>) {
                const auto pair = *reinterpret_cast<const Pair<T>*>(tile + row * TttLinear<T, F>::stride + column);
                values.at[n][i] = to_float(pair.at[0]);
                values.at[n][i + 1] = to_float(pair.at[1]);
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    values.at[n][i + j] =
                        row < rows && column + j < where.width ? to_float(from[row * where.stride + column + j]) : 0.0f;
            }
        }
    return values;
}

// This warp's columns to global memory.
template <class T>
__device__ inline void store_values(T* to, const Sums<2>& values, const HeadRows& where, int rows, int first_column) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int row = Sums<2>::row(i), column = first_column + Sums<2>::column(n, i);
            T* const place = to + (row * where.stride + column);
            const T low = from_float<T>(values.at[n][i]), high = from_float<T>(values.at[n][i + 1]);
            if (row >= rows) continue;
            if (where.aligned) {  // the width is even
                if (column < where.width) *reinterpret_cast<Pair<T>*>(place) = {{low, high}};
            } else {
                if (column < where.width) place[0] = low;
                if (column + 1 < where.width) place[1] = high;
            }
        }
}

// This warp's columns, rounded, into a shared tile.
template <class T, int F>
__device__ inline void store_tile(typename TttLinear<T, F>::Operand* tile, const Sums<2>& values, int first_column) {
    using Operand = typename TttLinear<T, F>::Operand;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            *reinterpret_cast<Pair<Operand>*>(tile + Sums<2>::row(i) * TttLinear<T, F>::stride + first_column +
                                              Sums<2>::column(n, i)) = {
                {from_float<Operand>(values.at[n][i]), from_float<Operand>(values.at[n][i + 1])}};
}

// This warp's 16 rows of Wᵀ (or dWᵀ), rounded, into rows 16w … of a matrix with `stride` elements a row.
template <class T, int F>
__device__ inline void store_rows(typename TttLinear<T, F>::Operand* matrix, int stride, const Sums<F / 8>& state) {
    using Operand = typename TttLinear<T, F>::Operand;
    const int first_row = static_cast<int>(threadIdx.x) / warp_width * 16;
#pragma unroll
    for (int n = 0; n < F / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            *reinterpret_cast<Pair<Operand>*>(matrix + (first_row + Sums<2>::row(i)) * stride +
                                              Sums<F / 8>::column(n, i)) = {
                {from_float<Operand>(state.at[n][i]), from_float<Operand>(state.at[n][i + 1])}};
}

// z += left W for this warp's columns, W from the registers that hold it; for float through `rows`, a matrix in shared
// memory to which the warp has written its rows.
template <class T, int F>
__device__ inline void multiply_state(Sums<2>& z, const Left<typename TttLinear<T, F>::Operand, F / 16>& left,
                                      const Sums<F / 8>& state, const typename TttLinear<T, F>::Operand* rows) {
    if constexpr (TttLinear<T, F>::registers_to_operand) {
#pragma unroll
        for (int k = 0; k < F / 16; ++k)
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const unsigned b[2] = {pack_pair<bf16>(state.at[2 * k][2 * n], state.at[2 * k][2 * n + 1]),
                                       pack_pair<bf16>(state.at[2 * k + 1][2 * n], state.at[2 * k + 1][2 * n + 1])};
                mma_16x8x16(z.at[n], left.at[k], b, bf16{});
            }
    } else {
        const int first_row = static_cast<int>(threadIdx.x) / warp_width * 16;
        multiply<Right::rows_of_n>(z, left, rows + first_row * TttLinear<T, F>::stride, TttLinear<T, F>::stride);
    }
}

// Calls body(value, element of a [f, f] fp32 matrix) for this thread's part of Wᵀ or dWᵀ, without padding. A moving
// pointer takes fewer registers than separate addresses.
template <int F, class Body>
__device__ inline void for_state(Sums<F / 8>& state, float* matrix, const TileColumns<2>& columns, Body&& body) {
    const int width = columns.width, out = columns.first_column + Sums<F / 8>::row(0);
    int in = Sums<F / 8>::column(0, 0);
    float* place = matrix + in * width + out;
#pragma unroll
    for (int n = 0; n < F / 8; ++n, in += 8, place += 8 * width)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (in + (i & 1) < width && out + 4 * (i & 2) < width)
                body(state.at[n][i], place[(i & 1) * width + 4 * (i & 2)]);
}

// A model in the tensors' layout: weight [f, f], bias [f].
template <int F>
__device__ inline void load_model(Sums<F / 8>& state, Columns<2>& bias, const float* weight, const float* bias_from,
                                  const TileColumns<2>& columns) {
    state.clear();
    for_state<F>(state, const_cast<float*>(weight), columns, [](float& value, const float& place) { value = place; });
    bias = columns.load(bias_from);
}

// Wᵀ as saved in device memory: each thread's values, four floats at a time, so that a warp accesses whole lines.
template <int F>
__device__ inline void keep_weights(float* to, const Sums<F / 8>& state) {
#pragma unroll
    for (int n = 0; n < F / 8; ++n) {
        const Vector16<float> four = {{state.at[n][0], state.at[n][1], state.at[n][2], state.at[n][3]}};
        store16(to + (n * 2 * F + static_cast<int>(threadIdx.x)) * 4, four);
    }
}
template <int F>
__device__ inline void load_weights(Sums<F / 8>& state, const float* from) {
#pragma unroll
    for (int n = 0; n < F / 8; ++n) {
        const Vector16<float> four = load16(from + (n * 2 * F + static_cast<int>(threadIdx.x)) * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) state.at[n][i] = four.at[i];
    }
}

// A row of F floats, of which this warp has its columns.
__device__ inline void store_columns(float* row, const Columns<2>& values, int first_column) {
    if (lane_index() < 4)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) row[first_column + Sums<2>::column(n, i)] = values.at[n][i];
}
__device__ inline Columns<2> load_columns(const float* row, int first_column) {
    Columns<2> values;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const auto two = *reinterpret_cast<const Pair<float>*>(row + first_column + Sums<2>::column(n, 0));
        values.at[n][0] = two.at[0];
        values.at[n][1] = two.at[1];
    }
    return values;
}

// bias in all rows.
__device__ inline Sums<2> broadcast(const Columns<2>& bias) {
    Sums<2> z;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) z.at[n][i] = bias.at[n][i & 1];
    return z;
}

// W' = W - Kᵀ(e⊙G), c' = c - eᵀG. `work`: a tile; this warp uses its own columns only.
template <class T, int F>
__device__ inline void update_state(Sums<F / 8>& state, Columns<2>& bias, const Sums<2>& gradient,
                                    const typename TttLinear<T, F>::Operand* keys,
                                    typename TttLinear<T, F>::Operand* work, const TileSteps& steps, int first_column) {
    using Operand = typename TttLinear<T, F>::Operand;
    Sums<2> step;
    Columns<2> sum;
    sum.clear();
    const int row = lane_index() / 4;
    const float last[2] = {-steps.last(row), -steps.last(row + 8)};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            step.at[n][i] = last[i / 2] * gradient.at[n][i];
            sum.at[n][i & 1] += step.at[n][i];
        }
    __syncwarp(all_lanes);  // an earlier use of `work` is over
    store_tile<T, F>(work, step, first_column);
    __syncwarp(all_lanes);
    Left<Operand, 1> left;
    load_left_transposed(left, work + first_column, TttLinear<T, F>::stride);
    multiply<Right::rows_of_k>(state, left, keys, TttLinear<T, F>::stride);
    sum_over_rows(sum);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) bias.at[n][i] += sum.at[n][i];
}

// This warp's columns of the target T = V - K.
template <class T, int F>
__device__ inline Sums<2> take_target(const typename TttLinear<T, F>::Operand* keys,
                                      const typename TttLinear<T, F>::Operand* values, const T* keys_from,
                                      const T* values_from, const HeadRows& of_keys, const HeadRows& of_values,
                                      int rows, int first_column) {
    const Sums<2> k = tile_values<T, F>(keys, keys_from, of_keys, rows, first_column);
    Sums<2> target = tile_values<T, F>(values, values_from, of_values, rows, first_column);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) target.at[n][i] -= k.at[n][i];
    return target;
}

// M⊙E in a lane's places of a 16 × 16 tile.
__device__ inline Sums<2> step_tile(const TileSteps& steps) {
    Sums<2> e;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) e.at[n][i] = steps.step(Sums<2>::row(i), Sums<2>::column(n, i));
    return e;
}

// Calls launch_for(std::integral_constant<int, F>) with the smallest compiled F ≥ `width`. 16-bit types have F = 128
// only; narrower heads take the chunk kernels.
template <class T, class Function>
void for_padded_width(std::int64_t width, Function&& launch_for) {
    if constexpr (sizeof(T) == 2) {
        return launch_for(std::integral_constant<int, 128>{});
    } else {
        if (width <= 16) return launch_for(std::integral_constant<int, 16>{});
        if (width <= 32) return launch_for(std::integral_constant<int, 32>{});
        if (width <= 64) return launch_for(std::integral_constant<int, 64>{});
        return launch_for(std::integral_constant<int, 96>{});
    }
}

// Whether a warp owns columns of a tile (ttt_linear_forward.cu, ttt_linear_backward.cu): fp32 up to 96 columns, of
// which 128 exceed an A100's shared memory, and 16-bit heads of 97 to 128.
inline bool ttt_linear_has_columns(const TttShape& shape, Type type) {
    if (shape.mini_batch > 16) return false;
    return type == Type::fp32 ? shape.head_width <= 96 : shape.head_width > 96 && shape.head_width <= 128;
}

// Four mini-batches at once, where ttt_linear_has_chunks() (ttt_linear_chunk_*.cu).
void ttt_linear_forward_by_chunks(const TttArguments& arguments, Type type);
void ttt_linear_backward_by_chunks(const TttArguments& arguments, Type type);

// All other shapes, in plain fp32 and device memory (ttt_linear_general.cu).
void ttt_linear_forward_general(const TttArguments& arguments, Type type);
void ttt_linear_backward_general(const TttArguments& arguments, Type type);

}  // namespace lockstep::kernels::cuda
