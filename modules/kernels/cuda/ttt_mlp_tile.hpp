// TTT-MLP on tensor cores: shared by forward and backward. For bf16 and fp16, mini-batches of at most 16 tokens, heads
// of at most F = 64 or 96 features; all products are bf16 with fp32 sums.
//
// A block of F/8 warps works on one head of one sequence. A warp owns 32 of the 4F hidden features: its rows of W1ᵀ and
// W2, and its columns of everything [tokens, hidden]. All these are 16 × 16 tiles in the lanes' own order, so that no
// lane ever reads another's part of them. Sums over all hidden features, from one layer to the other, are reduced
// across the warps in shared memory, in order; each warp then takes whole rows (tokens) of the sums. Nonexistent tokens
// and features are zeros, with steps of 0.
#pragma once

#include "kernels/cuda/tile.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {

constexpr int mlp_rows = 16;         // tokens of a tile
constexpr int mlp_hidden_tiles = 2;  // of a warp

// A 16 × 16 tile of bf16, in the tensor cores' layout of the left operand.
struct alignas(16) Tile {
    unsigned at[4];
};
__device__ inline Tile packed(const Sums<2>& sums) {
    Tile tile;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        tile.at[i] = pack_pair<bf16>(sums.at[i / 2][2 * (i % 2)], sums.at[i / 2][2 * (i % 2) + 1]);
    return tile;
}
__device__ inline Tile transposed(const Tile& tile) {
    return {{move_matrix_transposed(tile.at[0]), move_matrix_transposed(tile.at[2]), move_matrix_transposed(tile.at[1]),
             move_matrix_transposed(tile.at[3])}};
}
// sums += left rightᵀ.
__device__ inline void multiply(Sums<2>& sums, const Tile& left, const Tile& right) {
    const unsigned low[2] = {right.at[0], right.at[2]}, high[2] = {right.at[1], right.at[3]};
    mma_16x8x16(sums.at[0], left.at, low, bf16{});
    mma_16x8x16(sums.at[1], left.at, high, bf16{});
}
// From rows of 16 tokens in shared memory: columns [0, 16) as a tile, and its transpose.
__device__ inline Tile load_tile(const bf16* rows, int stride) {
    Tile tile;
    const int lane = lane_index();
    load_matrix_x4(tile.at, rows + (lane % 16) * stride + (lane / 16) * 8);
    return tile;
}
__device__ inline Tile load_tile_transposed(const bf16* rows, int stride) {
    Tile tile;
    const int lane = lane_index();
    load_matrix_x4_transposed(tile.at, rows + (lane % 8 + (lane / 16) * 8) * stride + ((lane / 8) % 2) * 8);
    return tile;
}
// function(n, i) for all sums of a lane, in place.
template <class Function>
__device__ inline void for_sums(Function&& function) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) function(n, i);
}
// Column sums of a tile over its 16 rows, in all lanes of a column: at[n][0..1] as at[n][0..1] of a Sums<2>.
struct ColumnSums {
    float at[2][2];
};
__device__ inline ColumnSums column_sums(const Sums<2>& sums) {
    ColumnSums result;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float sum = sums.at[n][i] + sums.at[n][i + 2];
#pragma unroll
            for (int distance = 4; distance < warp_width; distance *= 2)
                sum += __shfl_xor_sync(all_lanes, sum, distance);
            result.at[n][i] = sum;
        }
    return result;
}

template <int F>
struct MlpGeometry {
    static constexpr int warps = F / 8, threads = warps * warp_width, tiles = F / 16;  // tiles across f
    static constexpr bool on_chip = F == 64;  // whether a weight of the state, fp32, is kept in registers
    static constexpr int row_stride = F + 8, score_stride = 24, bf16_stride = F + 8;  // free of bank conflicts
    static constexpr int partial_floats = warps * mlp_rows * row_stride;
    static constexpr int score_floats = warps * mlp_rows * score_stride;
    static constexpr int row_floats = mlp_rows * F, bf16_rows = mlp_rows * bf16_stride;
    // One weight's tiles: 2 float4 a lane as fp32, one Tile a lane as bf16.
    static constexpr int weight_tiles = warps * mlp_hidden_tiles * tiles;
    static constexpr int weight_floats = weight_tiles * 256;  // = F · 4F
    static constexpr int state_floats = 2 * weight_floats + 4 * F + F;
};

// One weight (W1ᵀ or W2, or a gradient): this warp's tiles [2][F/16] in fp32, in registers if they fit, otherwise in
// memory that only this lane accesses.
template <int F, bool in_registers>
class WeightTiles {
    using Geometry = MlpGeometry<F>;
    static constexpr int kept = in_registers ? Geometry::tiles : 1;

  public:
    // For a state that is not in registers: fp32 [weight_floats], and the same tiles as bf16 [weight_tiles · 32].
    __device__ WeightTiles(float* memory, Tile* tiles) : memory_(memory), tiles_(tiles) {}

    __device__ static int tile_place(int h, int c) {
        const int warp = static_cast<int>(threadIdx.x) / warp_width;
        return ((warp * mlp_hidden_tiles + h) * Geometry::tiles + c) * warp_width + lane_index();
    }
    __device__ static int place(int h, int c) {  // of the first of two float4, in floats
        const int warp = static_cast<int>(threadIdx.x) / warp_width;
        return ((warp * mlp_hidden_tiles + h) * Geometry::tiles + c) * 256 + lane_index() * 4;
    }
    __device__ static Sums<2> load(const float* memory, int h, int c) {
        Sums<2> sums;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const Vector16<float> four = load16(memory + place(h, c) + n * 128);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums.at[n][i] = four.at[i];
        }
        return sums;
    }
    __device__ static void store(float* memory, int h, int c, const Sums<2>& sums) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            Vector16<float> four;
#pragma unroll
            for (int i = 0; i < 4; ++i) four.at[i] = sums.at[n][i];
            store16(memory + place(h, c) + n * 128, four);
        }
    }

    __device__ Sums<2> get(int h, int c) const {
        if constexpr (in_registers)
            return values_[h][c];
        else
            return load(memory_, h, c);
    }
    __device__ void set(int h, int c, const Sums<2>& sums) {
        if constexpr (in_registers)
            values_[h][c] = sums;
        else {
            store(memory_, h, c, sums);
            tiles_[tile_place(h, c)] = packed(sums);
        }
    }
    __device__ Tile tile(int h, int c) const {
        if constexpr (in_registers)
            return packed(values_[h][c]);
        else
            return tiles_[tile_place(h, c)];
    }
    __device__ void clear_all() {
        Sums<2> zero;
        zero.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) set(h, c, zero);
    }
    __device__ void load_all(const float* from) {
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) set(h, c, load(from, h, c));
    }
    __device__ void store_all(float* to) const {
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) store(to, h, c, get(h, c));
    }
    // From a model in the tensors' layout: the element of hidden feature x and feature y is at x · hidden_stride + y ·
    // stride.
    __device__ void load_model(const float* from, int hidden_stride, int stride, const TttMlpSizes& sizes) {
        const int warp = static_cast<int>(threadIdx.x) / warp_width;
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) {
                Sums<2> sums;
                for_sums([&](int n, int i) {
                    const int x = warp * 32 + h * 16 + Sums<2>::row(i), y = c * 16 + Sums<2>::column(n, i);
                    sums.at[n][i] = x < sizes.hidden && y < sizes.width ? from[x * hidden_stride + y * stride] : 0.0f;
                });
                set(h, c, sums);
            }
    }
    // To a part or a tensor, in the tensor's layout.
    __device__ void store_model(float* to, int hidden_stride, int stride, const TttMlpSizes& sizes) const {
        const int warp = static_cast<int>(threadIdx.x) / warp_width;
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) {
                const Sums<2> sums = get(h, c);
                for_sums([&](int n, int i) {
                    const int x = warp * 32 + h * 16 + Sums<2>::row(i), y = c * 16 + Sums<2>::column(n, i);
                    if (x < sizes.hidden && y < sizes.width) to[x * hidden_stride + y * stride] = sums.at[n][i];
                });
            }
    }

  private:
    Sums<2> values_[in_registers ? mlp_hidden_tiles : 1][kept];
    float* memory_;
    Tile* tiles_;
};

// c1, or a gradient of it, is an array [4F] in shared memory. Its element for a lane's sum at[n][i] of hidden tile h:
__device__ inline int hidden_column(int h, int n, int i) {
    return static_cast<int>(threadIdx.x) / warp_width * 32 + h * 16 + Sums<2>::column(n, i);
}
// bias += sums, or = sums, for this warp's columns. Visible to other lanes after a barrier.
__device__ inline void add_to_bias(float* bias, int h, const ColumnSums& sums) {
    if (lane_index() < 4) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) bias[hidden_column(h, n, i)] += sums.at[n][i];
    }
    __syncwarp(all_lanes);  // tensor cores need a converged warp
}
__device__ inline void set_bias(float* bias, int h, const ColumnSums& sums) {
    if (lane_index() < 4) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) bias[hidden_column(h, n, i)] = sums.at[n][i];
    }
    __syncwarp(all_lanes);
}

// Pairs of neighbouring elements: f is even, so rows are aligned to two elements.
template <class T>
struct alignas(2 * sizeof(T)) Two {
    T at[2];
};

// Writes a 16 × 16 tile of partial sums of this warp.
template <int F>
__device__ inline void store_partial(float* partial, int c, const Sums<2>& sums) {
    float* const to = partial + static_cast<int>(threadIdx.x) / warp_width * mlp_rows * MlpGeometry<F>::row_stride;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            *reinterpret_cast<Two<float>*>(to + Sums<2>::row(i) * MlpGeometry<F>::row_stride + 16 * c +
                                           Sums<2>::column(n, 0)) = {{sums.at[n][i], sums.at[n][i + 1]}};
}
template <int F>
__device__ inline float partial_sum(const float* partial, int row, int column) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < MlpGeometry<F>::warps; ++w)
        sum += partial[(w * mlp_rows + row) * MlpGeometry<F>::row_stride + column];
    return sum;
}
template <int F>
__device__ inline void store_scores(float* scores, const Sums<2>& sums) {
    float* const to = scores + static_cast<int>(threadIdx.x) / warp_width * mlp_rows * MlpGeometry<F>::score_stride;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            *reinterpret_cast<Two<float>*>(to + Sums<2>::row(i) * MlpGeometry<F>::score_stride +
                                           Sums<2>::column(n, 0)) = {{sums.at[n][i], sums.at[n][i + 1]}};
}
template <int F>
__device__ inline float score_sum(const float* scores, int row, int column) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < MlpGeometry<F>::warps; ++w)
        sum += scores[(w * mlp_rows + row) * MlpGeometry<F>::score_stride + column];
    return sum;
}

// This warp's fp32 values [tokens, hidden], kept for a later step: if a state fills the registers, in shared memory
// that only this lane accesses, otherwise in registers.
template <int F>
class Waiting {
    static constexpr bool in_memory = MlpGeometry<F>::on_chip;

  public:
    static constexpr int floats = in_memory ? mlp_hidden_tiles * 2 * MlpGeometry<F>::threads * 4 : 0;
    __device__ explicit Waiting(float* memory) : memory_(memory) {}
    __device__ Sums<2> get(int h) const {
        if constexpr (in_memory) {
            Sums<2> sums;
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const Vector16<float> four = load16(memory_ + place(h, n));
#pragma unroll
                for (int i = 0; i < 4; ++i) sums.at[n][i] = four.at[i];
            }
            return sums;
        } else {
            return values_[h];
        }
    }
    __device__ void set(int h, const Sums<2>& sums) {
        if constexpr (in_memory) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                Vector16<float> four;
#pragma unroll
                for (int i = 0; i < 4; ++i) four.at[i] = sums.at[n][i];
                store16(memory_ + place(h, n), four);
            }
        } else {
            values_[h] = sums;
        }
    }

  private:
    __device__ static int place(int h, int n) {
        return ((h * 2 + n) * MlpGeometry<F>::threads + static_cast<int>(threadIdx.x)) * 4;
    }
    Sums<2> values_[in_memory ? 1 : mlp_hidden_tiles];
    float* memory_;
};

}  // namespace lockstep::kernels::cuda
