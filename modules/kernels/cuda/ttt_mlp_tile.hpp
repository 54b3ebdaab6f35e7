// TTT-MLP on tensor cores: shared by forward and backward. For bf16 and fp16, mini-batches of at most 16 tokens, heads
// of at most F = 64 or 96 features; all products are bf16 with fp32 sums.
//
// A block of F/8 warps works on one head of one sequence. A warp owns 32 of the 4F hidden features: its rows of W1ᵀ and
// W2, and its columns of everything [tokens, hidden]. All these are 16 × 16 tiles in the lanes' own order, so that no
// lane ever reads another's part of them. Sums over all hidden features, from one layer to the other, are reduced
// across the warps in shared memory, in order; each warp then takes whole rows (tokens) of the sums. Nonexistent tokens
// and features are zeros, with steps of 0.
#pragma once

#include "kernels/cuda/pack.hpp"
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
// The same with the columns of each pair swapped.
__device__ inline Tile packed_swapped(const Sums<2>& sums) {
    Tile tile;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        tile.at[i] = pack_pair<bf16>(sums.at[i / 2][2 * (i % 2) + 1], sums.at[i / 2][2 * (i % 2)]);
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
// The order in memory of a tile that is a right operand: the words of one mma side by side, so that a load of 16 bytes
// puts them into neighbouring registers, where the mma wants them. Its own inverse.
__device__ inline Tile paired(const Tile& tile) {
    return {{tile.at[0], tile.at[2], tile.at[1], tile.at[3]}};
}
// From rows of 16 tokens in shared memory: columns [0, 16) as a left operand, as a right one, and their transpose as a
// right one.
__device__ inline Tile load_tile(const bf16* rows, int stride) {
    Tile tile;
    const int lane = lane_index();
    load_matrix_x4(tile.at, rows + (lane % 16) * stride + (lane / 16) * 8);
    return tile;
}
__device__ inline Tile load_right_tile(const bf16* rows, int stride) {
    Tile tile;
    const int lane = lane_index();
    load_matrix_x4(tile.at, rows + (lane % 8 + (lane / 16) * 8) * stride + ((lane / 8) % 2) * 8);
    return paired(tile);
}
__device__ inline Tile load_right_tile_transposed(const bf16* rows, int stride) {
    Tile tile;
    const int lane = lane_index();
    load_matrix_x4_transposed(tile.at, rows + (lane % 16) * stride + (lane / 16) * 8);
    return paired(tile);
}
// function(n, i) for all sums of a lane, in place.
template <class Function>
__device__ inline void for_sums(Function&& function) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) function(n, i);
}
// The values of a tile as its products read them.
__device__ inline Sums<2> unpacked(const Tile& tile) {
    Sums<2> sums;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sums.at[i / 2][2 * (i % 2)] = unpack_low<bf16>(tile.at[i]);
        sums.at[i / 2][2 * (i % 2) + 1] = unpack_high<bf16>(tile.at[i]);
    }
    return sums;
}
// What `tile`, packed from these sums, has lost.
__device__ inline Tile packed_rest(const Sums<2>& sums, const Tile& tile) {
    Sums<2> rest = unpacked(tile);
    for_sums([&](int n, int i) { rest.at[n][i] = sums.at[n][i] - rest.at[n][i]; });
    return packed(rest);
}
// A lane's own 16 × 16 values, kept in memory [256] in the lanes' order.
__device__ inline Sums<2> load_sums(const float* memory) {
    Sums<2> sums;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const Vector16<float> four = load16(memory + n * 128 + lane_index() * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.at[n][i] = four.at[i];
    }
    return sums;
}
__device__ inline void store_lane_sums(float* memory, const Sums<2>& sums) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        Vector16<float> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four.at[i] = sums.at[n][i];
        store16(memory + n * 128 + lane_index() * 4, four);
    }
}

// Sums over the 8 lanes l / 4 = 0 … 7 of each quad position, of N values at once: bit b of l / 4, from the highest,
// chooses between the halves of what is left, so that N = 8 leaves the sum of value l / 4 in lane l; N = 4 that of
// value l / 8.
template <int N>
__device__ inline float spread_sum(float (&values)[N]) {
    int distance = 16;
#pragma unroll
    for (int half = N / 2; half >= 1; half /= 2, distance /= 2) {
        const bool upper = (lane_index() & distance) != 0;
#pragma unroll
        for (int k = 0; k < half; ++k) {
            const float given = upper ? values[k] : values[k + half], kept = upper ? values[k + half] : values[k];
            values[k] = kept + __shfl_xor_sync(all_lanes, given, distance);
        }
    }
    float sum = values[0];
#pragma unroll
    for (; distance >= 4; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
    return sum;
}
// Column sums of this warp's 32 hidden features over the 16 rows, row r weighted with weights[0] (r < 8) or [1] of its
// lanes; each lane gets that of own_hidden_column().
__device__ inline float hidden_sum(const Sums<2> (&sums)[mlp_hidden_tiles], const float (&weights)[2]) {
    float values[8];
#pragma unroll
    for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                values[4 * h + 2 * n + i] = fmaf(weights[1], sums[h].at[n][i + 2], weights[0] * sums[h].at[n][i]);
    return spread_sum(values);
}
__device__ inline float hidden_sum(const Sums<2> (&sums)[mlp_hidden_tiles]) {
    float values[8];
#pragma unroll
    for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) values[4 * h + 2 * n + i] = sums[h].at[n][i] + sums[h].at[n][i + 2];
    return spread_sum(values);
}
__device__ inline int own_hidden_column() {
    const int lane = lane_index();
    return static_cast<int>(threadIdx.x) - lane + 8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2;
}

template <int F>
struct MlpGeometry {
    static constexpr int warps = F / 8, threads = warps * warp_width, tiles = F / 16;  // tiles across f
    static constexpr bool on_chip = F == 64;              // whether a weight of the state, fp32, is kept in registers
    static constexpr int unrolled = on_chip ? tiles : 2;  // of the tiles across f: the code must fit the caches
    static constexpr int row_stride = F + 8, bf16_stride = F + 8;  // free of bank conflicts
    static constexpr int partial_floats = warps * mlp_rows * row_stride;
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
    // For a state that is not in registers: fp32 [weight_floats], and the same tiles as bf16, paired [weight_tiles ·
    // 32].
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
            tiles_[tile_place(h, c)] = paired(packed(sums));
        }
    }
    __device__ Tile tile(int h, int c) const {
        if constexpr (in_registers)
            return packed(values_[h][c]);
        else
            return paired(tiles_[tile_place(h, c)]);
    }
    __device__ void load_all(const float* from) {
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll Geometry::unrolled
            for (int c = 0; c < Geometry::tiles; ++c) set(h, c, load(from, h, c));
    }
    __device__ void store_all(float* to) const {
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll Geometry::unrolled
            for (int c = 0; c < Geometry::tiles; ++c) store(to, h, c, get(h, c));
    }
    // sums = left · weight(·, c). The columns of each pair are swapped before the product and back after it. The result
    // is the same, but the compiler cannot reuse the rounded tiles of another product, which would occupy 64 registers.
    __device__ Sums<2> product(const Tile (&left)[mlp_hidden_tiles], int c) const {
        Sums<2> sums;
        sums.clear();
        if constexpr (in_registers) {
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h)
                multiply(sums, left[h], transposed(packed_swapped(values_[h][c])));
            for_sums([&](int n, int i) {
                if (i % 2 != 0) return;
                const float first = sums.at[n][i + 1];
                sums.at[n][i + 1] = sums.at[n][i];
                sums.at[n][i] = first;
            });
        } else {
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, left[h], transposed(tile(h, c)));
        }
        return sums;
    }

  private:
    Sums<2> values_[in_registers ? mlp_hidden_tiles : 1][kept];
    float* memory_;
    Tile* tiles_;
};

// Both weights of a state in the lanes' order, fp32 [2, weight_floats], and from there: rolled loops, where a state in
// registers would need code for each of its numbers. A lane writes and reads only what is its own.
template <int F, class Each>
__device__ inline void for_state_tiles(const TttMlpSizes& sizes, Each&& each) {
    using Geometry = MlpGeometry<F>;
    const int warp = static_cast<int>(threadIdx.x) / warp_width;
#pragma unroll 1
    for (int weight = 0; weight < 2; ++weight)
#pragma unroll 1
        for (int tile = 0; tile < mlp_hidden_tiles * Geometry::tiles; ++tile) {
            const int h = tile / Geometry::tiles, c = tile % Geometry::tiles;
            // In the tensors, W1 is [f, 4f] and W2 [4f, f].
            const int hidden_stride = weight == 0 ? 1 : sizes.width, stride = weight == 0 ? sizes.hidden : 1;
            each(weight, (weight * Geometry::weight_tiles + warp * mlp_hidden_tiles * Geometry::tiles + tile) * 256,
                 [&](int n, int i) {  // an element's place in the tensor; negative in padding
                     const int x = warp * 32 + h * 16 + Sums<2>::row(i), y = c * 16 + Sums<2>::column(n, i);
                     return x < sizes.hidden && y < sizes.width ? x * hidden_stride + y * stride : -1;
                 });
        }
}
// From a model, or zeros where that is null; `tiles`: the bf16 copies of a state that is not in registers, or null.
template <int F>
__device__ inline void place_state(float* state, Tile* tiles, const float* weight1, const float* weight2,
                                   const TttMlpSizes& sizes) {
    for_state_tiles<F>(sizes, [&](int weight, int at, auto&& place) {
        const float* const from = weight == 0 ? weight1 : weight2;
        Sums<2> sums;
        for_sums([&](int n, int i) {
            const int element = place(n, i);
            sums.at[n][i] = from && element >= 0 ? from[element] : 0.0f;
        });
        store_lane_sums(state + at, sums);
        if (tiles) tiles[at / 8 + lane_index()] = paired(packed(sums));
    });
}
template <int F, bool Add = false>
__device__ inline void copy_state(float* weight1, float* weight2, const float* state, const TttMlpSizes& sizes) {
    for_state_tiles<F>(sizes, [&](int weight, int at, auto&& place) {
        float* const to = weight == 0 ? weight1 : weight2;
        const Sums<2> sums = load_sums(state + at);
        for_sums([&](int n, int i) {
            const int element = place(n, i);
            if (element >= 0) to[element] = Add ? to[element] + sums.at[n][i] : sums.at[n][i];
        });
    });
}

// c1, or a gradient of it, an array [4F], for a lane's sums of hidden tile h: the same in all rows.
__device__ inline Sums<2> bias_sums(const float* bias, int h) {
    const float* const from = bias + static_cast<int>(threadIdx.x) / warp_width * 32 + h * 16 + 2 * (lane_index() % 4);
    Sums<2> sums;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const auto two = load_pack<2>(from + 8 * n);
        sums.at[n][0] = sums.at[n][2] = two.at[0];
        sums.at[n][1] = sums.at[n][3] = two.at[1];
    }
    return sums;
}

// Writes a 16 × 16 tile of partial sums of this warp, columns 16c … 16c + 15.
template <int F>
__device__ inline void store_partial(float* partial, int c, const Sums<2>& sums) {
    constexpr int stride = MlpGeometry<F>::row_stride;
    const int lane = lane_index();
    float* const to =
        partial + (static_cast<int>(threadIdx.x) / warp_width * mlp_rows + lane / 4) * stride + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
            store_pack(to + 8 * r * stride + 16 * c + 8 * n,
                       Pack<float, 2>{{sums.at[n][2 * r], sums.at[n][2 * r + 1]}});
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

// N operand tiles of this warp, kept likewise.
template <int F, int N>
class WaitingTiles {
    static constexpr bool in_memory = MlpGeometry<F>::on_chip;

  public:
    static constexpr int floats = in_memory ? N * MlpGeometry<F>::threads * 4 : 0;
    __device__ explicit WaitingTiles(float* memory) : memory_(reinterpret_cast<Tile*>(memory) + threadIdx.x) {}
    __device__ Tile get(int i) const {
        if constexpr (in_memory)
            return memory_[i * MlpGeometry<F>::threads];
        else
            return values_[i];
    }
    __device__ void set(int i, const Tile& tile) {
        if constexpr (in_memory)
            memory_[i * MlpGeometry<F>::threads] = tile;
        else
            values_[i] = tile;
    }

  private:
    Tile* memory_;
    Tile values_[in_memory ? 1 : N];
};

}  // namespace lockstep::kernels::cuda
