// What the kernels of the delta rule share: tiles of a chunk of 64 tokens in shared memory, and its decays. Tiles hold
// bf16, but for fp32 tensors fp32. Rows beyond the sequence are zeros with log_decay and strength 0, which change
// nothing.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/delta.hpp"
#include "kernels/cuda/tile.hpp"

namespace lockstep::kernels::cuda {

constexpr int delta_chunk = static_cast<int>(delta_gpu_chunk);
static_assert(delta_chunk == 64);

template <class T>
using DeltaOperand = std::conditional_t<std::is_same_v<T, float>, float, bf16>;

// K: the padded width of keys. A block takes `slice` columns of the values at a time.
template <class T, int K>
struct DeltaTiles {
    using Operand = DeltaOperand<T>;
    static constexpr int pad = 16 / static_cast<int>(sizeof(Operand));  // no bank conflicts
    static constexpr int slice = static_cast<int>(delta_gpu_slice(K, std::is_same_v<T, float>));
    static constexpr int key_stride = K + pad, square_stride = delta_chunk + pad, slice_stride = slice + pad;
    static constexpr int keys = delta_chunk * key_stride;       // elements of a tile [64, K]
    static constexpr int square = delta_chunk * square_stride;  // [64, 64]
    static constexpr int values = delta_chunk * slice_stride;   // [64, slice]
    static constexpr int state = K * slice_stride;              // [K, slice]
};

// Of a block, on an A100.
constexpr std::size_t delta_shared_limit = 163 * 1024;

template <class Function>
void for_padded_key_width(std::int64_t key_width, Function&& function) {
    if (delta_gpu_padded_key(key_width) == 64) return function(std::integral_constant<int, 64>());
    return function(std::integral_constant<int, 128>());
}

// Loads `columns` of the `rows` first of 64 rows into a tile of `padded` columns: zeros beyond. 16-byte copies
// (`aligned`) may be asynchronous: complete after copy_async_wait and a barrier. Of `threads` threads, this is
// `thread`.
template <int padded, class Operand, class T>
__device__ inline void delta_load(Operand* to, int stride, const T* from, std::int64_t from_stride, int rows,
                                  int columns, bool aligned, int thread, int threads) {
    if (aligned) {
        constexpr int each = Vector16<T>::count, row_pieces = padded / each;
        for (int piece = thread; piece < delta_chunk * row_pieces; piece += threads) {
            const int row = piece / row_pieces, column = piece % row_pieces * each;
            const bool valid = row < rows && column < columns;
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
    for (int i = thread; i < delta_chunk * padded; i += threads) {
        const int row = i / padded, column = i % padded;
        const bool valid = row < rows && column < columns;
        to[row * stride + column] = from_float<Operand>(valid ? to_float(from[row * from_stride + column]) : 0.0f);
    }
}

// Loads a whole matrix, dense and aligned, into a tile; asynchronously.
template <int rows, int columns, class Operand>
__device__ inline void delta_load_matrix(Operand* to, int stride, const Operand* from, int thread, int threads) {
    constexpr int each = Vector16<Operand>::count, row_pieces = columns / each;
    for (int piece = thread; piece < rows * row_pieces; piece += threads) {
        const int row = piece / row_pieces, column = piece % row_pieces * each;
        copy_async_16(to + row * stride + column, from + row * columns + column);
    }
}

// A state's columns, fp32 [key_width, width] in global memory, to and from this warp's rows of [K, slice]: 16-row
// blocks warp, warp + 4, … in registers.
template <class T, int K>
struct DeltaState {
    using Tiles = DeltaTiles<T, K>;
    static constexpr int blocks = K / 64, columns = Tiles::slice / 8;
    Sums<columns> at[blocks];

    // body(value, row, column)
    template <class Body>
    __device__ void each(int warp, Body&& body) {
#pragma unroll
        for (int b = 0; b < blocks; ++b)
#pragma unroll
            for (int n = 0; n < columns; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    body(at[b].at[n][i], 16 * (warp + 4 * b) + Sums<columns>::row(i), Sums<columns>::column(n, i));
    }
    __device__ void load(const float* from, int key_width, std::int64_t width, int slice_columns, int warp) {
        each(warp, [&](float& value, int row, int column) {
            value = from && row < key_width && column < slice_columns ? from[row * width + column] : 0.0f;
        });
    }
    __device__ void store(float* to, int key_width, std::int64_t width, int slice_columns, int warp) {
        each(warp, [&](const float& value, int row, int column) {
            if (row < key_width && column < slice_columns) to[row * width + column] = value;
        });
    }
    // Rounded, all of [K, slice].
    __device__ void store_tile(typename Tiles::Operand* tile, int stride, int warp) {
#pragma unroll
        for (int b = 0; b < blocks; ++b) store_sums_in_pairs(tile + 16 * (warp + 4 * b) * stride, stride, at[b]);
    }
    __device__ void scale(float factor) {
#pragma unroll
        for (int b = 0; b < blocks; ++b)
#pragma unroll
            for (int n = 0; n < columns; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) at[b].at[n][i] *= factor;
    }
    // += (keys [64, K])ᵀ values [64, slice]
    __device__ void add_product(const typename Tiles::Operand* keys, const typename Tiles::Operand* values, int warp) {
        Left<typename Tiles::Operand, delta_chunk / 16> left;
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            load_left_transposed(left, keys + 16 * (warp + 4 * b), Tiles::key_stride);
            multiply<Right::rows_of_k>(at[b], left, values, Tiles::slice_stride);
        }
    }
};

// The decays and strengths of a chunk in shared memory.
struct DeltaGates {
    // Σ log_decay up to and with each token, times log₂ e, in two parts: differences stay exact behind a strong decay.
    // Beyond the sequence that of its last token.
    float high[delta_chunk], low[delta_chunk];
    float strength[delta_chunk];

    // Two neighbouring tokens of each lane of a warp.
    struct Raw {
        float log_decay[2], strength[2];
    };
    __device__ static Raw fetch(const float* log_decay, const float* strengths, std::int64_t heads, int rows) {
        Raw raw;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int token = 2 * lane_index() + i;
            raw.log_decay[i] = token < rows ? log_decay[token * heads] : 0.0f;
            raw.strength[i] = token < rows ? strengths[token * heads] : 0.0f;
        }
        return raw;
    }
    // By one warp; readable after a barrier.
    __device__ void set(const Raw& raw) {
        const int lane = lane_index();
        double value[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            value[i] = 1.4426950408889634 * static_cast<double>(raw.log_decay[i]);
            strength[2 * lane + i] = raw.strength[i];
        }
        double total = value[0] + value[1];
#pragma unroll
        for (int distance = 1; distance < warp_width; distance *= 2) {
            const double before = __shfl_sync(all_lanes, total, lane >= distance ? lane - distance : lane);
            if (lane >= distance) total += before;
        }
        const double before = __shfl_sync(all_lanes, total, lane > 0 ? lane - 1 : 0);
        double sum = lane > 0 ? before : 0.0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            sum += value[i];
            high[2 * lane + i] = static_cast<float>(sum);
            low[2 * lane + i] = static_cast<float>(sum - static_cast<double>(high[2 * lane + i]));
        }
    }
    // exp(Σ log_decay) from behind token j up to and with token i >= j; from the start with token i; from behind token
    // j to the end; over all.
    __device__ float between(int i, int j) const {
        return fast_exp2((high[i] - high[j]) + (low[i] - low[j]));
    }
    __device__ float before(int i) const {
        return fast_exp2(high[i]);
    }
    __device__ float after(int j) const {
        return between(delta_chunk - 1, j);
    }
    __device__ float all() const {
        return before(delta_chunk - 1);
    }
};

// sums(row, column) *= factor(row), rows counted in the chunk from `first_row`.
template <int N, class Factor>
__device__ inline void scale_rows(Sums<N>& sums, int first_row, Factor&& factor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float by = factor(first_row + Sums<N>::row(2 * half));
#pragma unroll
        for (int n = 0; n < N; ++n) {
            sums.at[n][2 * half] *= by;
            sums.at[n][2 * half + 1] *= by;
        }
    }
}

// body(value, row, column) of a warp's 16 rows from `first_row`
template <int N, class Body>
__device__ inline void each_sum(Sums<N>& sums, int first_row, Body&& body) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) body(sums.at[n][i], first_row + Sums<N>::row(i), Sums<N>::column(n, i));
}

// Where a block's chunk is in the tensors.
struct DeltaPlace {
    std::int64_t pair, sequence, head, key_head, token;  // the chunk's first token, among all
    int rows;                                            // tokens in the chunk

    __device__ DeltaPlace(int of_pair, std::int64_t chunk, std::int64_t length, int heads, int key_heads)
        : pair(of_pair),
          sequence(of_pair / heads),
          head(of_pair % heads),
          key_head(of_pair % heads / (heads / key_heads)) {
        const std::int64_t start = chunk * delta_chunk, rest = length - start;
        token = sequence * length + start;
        rows = static_cast<int>(rest < delta_chunk ? rest : delta_chunk);
    }
};

}  // namespace lockstep::kernels::cuda
