// Tiles of attention: between global and shared memory, and their products. Distances within a tile are constants of
// the instructions, and what walks over tiles advances its pointers.
#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/shared_place.hpp"

namespace lockstep::kernels::cuda {

// Every n-th row of a tensor, from one of its rows on.
template <class Element>
class RowWalk {
  public:
    __device__ RowWalk(Element* first, std::int64_t stride, int step)
        : at_(first), step_(stride * step * static_cast<std::int64_t>(sizeof(Element))) {}

    __device__ Element* next() {
        Element* const row = at_;
        skip(1);
        return row;
    }
    __device__ void skip(int steps) {
        using Byte = std::conditional_t<std::is_const_v<Element>, const char, char>;
        at_ = reinterpret_cast<Element*>(reinterpret_cast<Byte*>(at_) + steps * step_);
    }
    __device__ void move(int elements) { at_ += elements; }

  private:
    Element* at_;
    std::int64_t step_;  // in bytes
};

// The rows of a key head: its group's queries, token by token, and of each token head by head. So a tile of rows shares
// keys and values among the heads of a group, and fills with them where queries are few.
struct GroupRow {
    int token, head;
    __device__ GroupRow(int row, int group) : token(group == 1 ? row : row / group), head(row - token * group) {}
};
// Every n-th of them, as rows of a tensor; `first`: the group's first head of the first token.
template <class Element>
class GroupWalk {
  public:
    __device__ GroupWalk(Element* first, int stride, int row, int step, const AttentionSizes& sizes)
        : GroupWalk(first, stride, GroupRow(row, sizes.group), GroupRow(step, sizes.group), sizes) {}

    __device__ Element* next() {
        Element* const row = first_ + offset_;
        head_ += heads_;
        const bool wraps = head_ >= group_;
        head_ -= wraps ? group_ : 0;
        offset_ += wraps ? step_ + wrap_ : step_;
        return row;
    }

  private:
    __device__ GroupWalk(Element* first, int stride, GroupRow row, GroupRow step, const AttentionSizes& sizes)
        : first_(first),
          offset_(static_cast<std::int64_t>(row.token) * stride + row.head * sizes.width),
          step_(step.token * stride + step.head * sizes.width),
          wrap_(stride - sizes.group * sizes.width),
          head_(row.head),
          heads_(step.head),
          group_(sizes.group) {}

    Element* first_;
    std::int64_t offset_;
    int step_, wrap_;  // wrap_: from behind the group's last head to the next token's first
    int head_, heads_, group_;
};
// Calls body(walk) with what walks over every step-th row of a key head, from `row` on. Most groups are one head, of
// which rows are as far apart as those of a matrix.
template <class Element, class Body>
__device__ inline void walk_rows(Element* first, int stride, int row, int step, const AttentionSizes& sizes,
                                 Body&& body) {
    if (sizes.group == 1)
        body(RowWalk<Element>(first + static_cast<std::int64_t>(row) * stride, stride, step));
    else
        body(GroupWalk<Element>(first, stride, row, step, sizes));
}
// The tokens of rows of a warp that a lane has sums of: 8 rows apart.
template <int rows>
__device__ inline void tokens_of_lane(int (&tokens)[rows], int first, int group) {
#pragma unroll
    for (int i = 0; i < rows; ++i) tokens[i] = GroupRow(first + lane_index() / 4 + 8 * i, group).token;
}

// Products of elements of T become scores in units of log2, in place.
template <class T, int N>
__device__ inline void bound_scores(Sums<N>& scores, const ScoreBounds& bounds) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores.at[n][i] *= bounds.scale;
    if (bounds.cap == 0) return;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& score = scores.at[n][i];
            if constexpr (sizeof(T) == 4)
                score = bounds.cap * tanhf(score);
            else  // to 1e-7, which is enough for weights of 16 bits
                score = fmaf(-2 * bounds.cap, fast_reciprocal(fast_exp2(2 * log2_of_e * score) + 1), bounds.cap);
        }
}

// How a block's threads share the 16-byte vectors of rows: a thread keeps to its columns and steps through the rows.
template <class W, int threads>
struct RowLanes {
    static constexpr int per_row = W::width / W::vector;
    static constexpr int side = W::exact ? per_row & -per_row : per_row;  // side by side
    static constexpr int step = threads / side, pieces = per_row / side;  // rows, and vectors of a row
    static_assert(!W::vectors || threads % side == 0);

    __device__ static int row() { return static_cast<int>(threadIdx.x) / side; }
    __device__ static int column() { return static_cast<int>(threadIdx.x) % side * W::vector; }
    template <class T>
    __device__ static SharedPlace place(T* tile) {
        return shared_place(tile + row() * W::stride + column());
    }
};

// Copies rows × W::width elements from global to shared memory by all `threads`, `distance` bytes beyond a tile of
// which RowLanes::place is `to`; `walk` gives this thread's rows and columns. Zeros in rows from `valid` on, unless all
// are valid, and in columns beyond the head's width. Ready after copy_async_wait and a barrier.
template <class W, int rows, int threads, int distance, bool all_valid, class Walk>
__device__ inline void copy_rows(SharedPlace to, Walk& walk, int valid, int width) {
    using Lanes = RowLanes<W, threads>;
    static_assert(rows % Lanes::step == 0 && W::vectors);
    unrolled<rows / Lanes::step>([&](auto n) {
        const typename W::T* from = walk.next();
        unrolled<Lanes::pieces>([&](auto piece) {
            constexpr int bytes = distance + n() * Lanes::step * W::row_bytes + piece() * Lanes::side * 16;
            if constexpr (all_valid)
                copy_async_16<bytes>(to, from + piece() * Lanes::side * W::vector);
            else
                copy_async_16<bytes>(to, from + piece() * Lanes::side * W::vector,
                                     Lanes::row() + n() * Lanes::step < valid && (W::exact || Lanes::column() < width));
        });
    });
}

// Rows of a matrix.
template <class T>
struct Rows {
    const T* first;
    int stride;
};

// Brings tile after tile of `rows` rows of two tensors to shared memory, the second's `distance` bytes behind the
// first's.
template <class W, int rows, int threads, int distance>
class PairLoader {
    using T = typename W::T;
    using Lanes = RowLanes<W, threads>;
    static constexpr int step = W::vectors ? Lanes::step : 1;

  public:
    // tile: where the first tile goes; valid: the rows there are.
    __device__ PairLoader(T* tile, Rows<T> first, Rows<T> second, int valid, int width)
        : first_(first.first, first.stride, step),
          second_(second.first, second.stride, step),
          tile_(tile),
          valid_(valid),
          width_(width) {
        if constexpr (W::vectors) {
            to_ = Lanes::place(tile);
            first_.move(Lanes::row() * first.stride + Lanes::column());
            second_.move(Lanes::row() * second.stride + Lanes::column());
        }
    }

    // The next tile, to `at` bytes from the first tile's place.
    __device__ void load(int at) {
        if constexpr (W::vectors) {
            const SharedPlace to = to_ + at;
            if (W::exact && valid_ >= rows) {
                copy_rows<W, rows, threads, 0, true>(to, first_, valid_, width_);
                copy_rows<W, rows, threads, distance, true>(to, second_, valid_, width_);
            } else {
                copy_rows<W, rows, threads, 0, false>(to, first_, valid_, width_);
                copy_rows<W, rows, threads, distance, false>(to, second_, valid_, width_);
            }
        } else {
            // A warp to a row.
            constexpr int warps = threads / warp_width;
            static_assert(rows % warps == 0);
            T* to = tile_ + at / static_cast<int>(sizeof(T));
#pragma unroll 1
            for (int row = 0; row < rows; ++row) {
                const T *const a = first_.next(), *const b = second_.next();
                if (row % warps == static_cast<int>(threadIdx.x) / warp_width)
                    for (int column = lane_index(); column < W::width; column += warp_width) {
                        const bool there = row < valid_ && column < width_;
                        to[column] = there ? a[column] : T{};
                        to[distance / static_cast<int>(sizeof(T)) + column] = there ? b[column] : T{};
                    }
                to += W::stride;
            }
        }
        valid_ -= rows;
    }

    // The next tile is `tiles` tiles before, and `elements` on.
    __device__ void back(int tiles, int elements) {
        first_.skip(-tiles * (rows / step));
        second_.skip(-tiles * (rows / step));
        first_.move(elements);
        second_.move(elements);
        valid_ += tiles * rows;
    }

  private:
    RowWalk<const T> first_, second_;
    T* tile_;
    SharedPlace to_{};
    int valid_, width_;
};

// A tile of queries, or of what is like them: rows [row, row + valid) of a key head. `from`: its group's first head.
template <class W, int rows, int threads>
__device__ inline void load_group_rows(typename W::T* to, Rows<typename W::T> from, int row, int valid,
                                       const AttentionSizes& sizes) {
    using T = typename W::T;
    if constexpr (W::vectors) {
        using Lanes = RowLanes<W, threads>;
        walk_rows(from.first + Lanes::column(), from.stride, row + Lanes::row(), Lanes::step, sizes, [&](auto walk) {
            if (W::exact && valid >= rows)
                copy_rows<W, rows, threads, 0, true>(Lanes::place(to), walk, valid, sizes.width);
            else
                copy_rows<W, rows, threads, 0, false>(Lanes::place(to), walk, valid, sizes.width);
        });
    } else {
        constexpr int warps = threads / warp_width;
        const int warp = static_cast<int>(threadIdx.x) / warp_width;
        GroupWalk<const T> walk(from.first, from.stride, row + warp, warps, sizes);
#pragma unroll 1
        for (int n = warp; n < rows; n += warps) {
            const T* const at = walk.next();
            for (int column = lane_index(); column < W::width; column += warp_width)
                to[n * W::stride + column] = n < valid && column < sizes.width ? at[column] : T{};
        }
    }
}

// 16 bytes in words, which the compiler does not take apart as it may do with 16-bit elements.
template <class T>
__device__ inline void copy_16(T* to, const T* from) {
    store_pack(reinterpret_cast<std::uint32_t*>(to), load_pack<4>(reinterpret_cast<const std::uint32_t*>(from)));
}

// Copies a warp's own rows of shared memory to global memory, the first `valid` of them; walk_over(row, step, body)
// calls body with what walks over their places.
template <class W, int rows, class WalkOver>
__device__ inline void store_warp_rows(const typename W::T* from, int valid, int width, WalkOver&& walk_over) {
    if constexpr (W::vectors) {
        constexpr int per_row = W::width / W::vector, whole = W::exact ? per_row & -per_row : per_row;
        constexpr int side = whole < warp_width ? whole : warp_width, step = warp_width / side;
        const int row = lane_index() / side, column = lane_index() % side * W::vector;
        const typename W::T* const lane_from = from + row * W::stride + column;
        walk_over(row, step, [&](auto walk) {
#pragma unroll
            for (int n = 0; n < rows; n += step) {
                typename W::T* const to = walk.next() + column;
                if (row + n < valid)
#pragma unroll
                    for (int c = 0; c < W::width; c += side * W::vector)
                        if (W::exact || column + c < width) copy_16(to + c, lane_from + n * W::stride + c);
            }
        });
    } else {
        walk_over(0, 1, [&](auto walk) {
#pragma unroll 1
            for (int row = 0; row < min(rows, valid); ++row) {
                typename W::T* const to = walk.next();
                for (int column = lane_index(); column < width; column += warp_width)
                    to[column] = from[row * W::stride + column];
            }
        });
    }
}

// A warp's sums times their rows' `factor(m, i)`, rounded, to global memory through `work`, the warp's own rows of
// shared memory.
template <class W, int N, int M, class Factor, class WalkOver>
__device__ inline void store_warp_sums(typename W::T* work, Sums<N> (&sums)[M], Factor&& factor, int valid, int width,
                                       WalkOver&& walk_over) {
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
    store_warp_rows<W, 16 * M>(work, valid, width, walk_over);
}

// What a product's sums begin with: themselves, or start(m, n, i) at sums[m].at[n][i].
struct Onto {};
struct FromZero {
    __device__ float operator()(int, int, int) const { return 0.0f; }
};

// Where a lane finds its part of an operand in shared memory; 32 bits where tensor cores read it. Distances are in
// bytes.
template <class W>
using OperandPlace = std::conditional_t<sizeof(typename W::T) == 4, const unsigned char*, SharedPlace>;

template <class W, Right layout>
__device__ inline OperandPlace<W> right_place(const typename W::T* tile) {
    const int lane = lane_index();
    if constexpr (sizeof(typename W::T) == 4)
        return reinterpret_cast<const unsigned char*>(tile);
    else if constexpr (layout == Right::rows_of_n)
        return shared_place(tile + (lane % 8 + lane / 16 * 8) * W::stride + lane / 8 % 2 * 8);
    else
        return shared_place(tile + lane % 16 * W::stride + lane / 16 * 8);
}
template <class W>
__device__ inline OperandPlace<W> left_place(const typename W::T* tile) {
    return right_place<W, Right::rows_of_k>(tile);  // the same rows and columns
}

namespace detail {

template <class T, class Start>
__device__ inline void multiply_block(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2], int m,
                                      int n, const Start& start) {
    if constexpr (std::is_same_v<Start, Onto>) {
        mma_16x8x16(sums, left, right, T{});
    } else {
        const float from[4] = {start(m, n, 0), start(m, n, 1), start(m, n, 2), start(m, n, 3)};
        mma_16x8x16(sums, left, right, from, T{});
    }
}

// One step of 16 of a product, number k.
template <class W, Right layout, int distance, int k, int N, int M, class Start>
__device__ inline void multiply_step(Sums<N> (&sums)[M], const unsigned (&left)[M][4], SharedPlace right,
                                     const Start& start) {
    using T = typename W::T;
    static_assert(N % 2 == 0);
    unrolled<N / 2>([&](auto pair) {
        constexpr int n = 2 * pair();
        constexpr int elements = layout == Right::rows_of_n ? 8 * n * W::stride + 16 * k : 16 * k * W::stride + 8 * n;
        constexpr int bytes = distance + elements * static_cast<int>(sizeof(T));
        unsigned r[4];
        if constexpr (layout == Right::rows_of_n)
            load_matrix_x4<bytes>(r, right);
        else
            load_matrix_x4_transposed<bytes>(r, right);
        const unsigned low[2] = {r[0], r[1]}, high[2] = {r[2], r[3]};
#pragma unroll
        for (int m = 0; m < M; ++m) {
            multiply_block<T>(sums[m].at[n], left[m], low, m, n, start);
            multiply_block<T>(sums[m].at[n + 1], left[m], high, m, n + 1, start);
        }
    });
}

template <int N, int M, class Start>
__device__ inline void begin(Sums<N> (&sums)[M], const Start& start) {
    if constexpr (!std::is_same_v<Start, Onto>)
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[m].at[n][i] = start(m, n, i);
}

}  // namespace detail

// sums[m] = start + left[m] right, of a right operand with rows of W.
template <class W, Right layout, int distance = 0, int K, int N, int M, class Start = Onto>
__device__ inline void multiply_tile(Sums<N> (&sums)[M], const Left<typename W::T, K> (&left)[M], OperandPlace<W> right,
                                     const Start& start = {}) {
    if constexpr (sizeof(typename W::T) == 4) {
        detail::begin(sums, start);
#pragma unroll
        for (int m = 0; m < M; ++m)
            multiply<layout>(sums[m], left[m], reinterpret_cast<const typename W::T*>(right + distance), W::stride);
    } else {
        unrolled<K>([&](auto k) {
            unsigned part[M][4];
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) part[m][i] = left[m].at[k()][i];
            if constexpr (k() == 0)
                detail::multiply_step<W, layout, distance, k()>(sums, part, right, start);
            else
                detail::multiply_step<W, layout, distance, k()>(sums, part, right, Onto{});
        });
    }
}

// sums[m] = start + rows [16m, 16m + 16) of `left` times the transpose of `right`, over a head's width; both
// `distance` bytes beyond their places.
template <class W, int left_distance, int right_distance, int N, int M, class Start>
__device__ inline void multiply_rows(Sums<N> (&sums)[M], OperandPlace<W> left, OperandPlace<W> right,
                                     const Start& start) {
    using T = typename W::T;
    if constexpr (sizeof(T) == 4) {
        detail::begin(sums, start);
        const T *const rows = reinterpret_cast<const T*>(left + left_distance), *const columns =
                                                                                    reinterpret_cast<const T*>(
                                                                                        right + right_distance);
#pragma unroll
        for (int k = 0; k < W::width / 16; ++k) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
                Left<T, 1> part;
                load_left(part, rows + 16 * m * W::stride + 16 * k, W::stride);
                multiply<Right::rows_of_n>(sums[m], part, columns + 16 * k, W::stride);
            }
        }
    } else {
        unrolled<W::width / 16>([&](auto k) {
            unsigned part[M][4];
            unrolled<M>([&](auto m) {
                load_matrix_x4<left_distance + 16 * (m() * W::stride + k()) * static_cast<int>(sizeof(T))>(part[m()],
                                                                                                           left);
            });
            if constexpr (k() == 0)
                detail::multiply_step<W, Right::rows_of_n, right_distance, k()>(sums, part, right, start);
            else
                detail::multiply_step<W, Right::rows_of_n, right_distance, k()>(sums, part, right, Onto{});
        });
    }
}

}  // namespace lockstep::kernels::cuda
