// TTT-MLP on tensor cores: what its forward and its backward share. For bf16 and fp16, mini-batches of at most 16
// tokens, heads of at most F = 64 or 96 features; all products are bf16 with fp32 sums.
//
// A block of F/8 warps works on one head of one sequence. A warp owns 32 of the 4F hidden features: its rows of W1ᵀ
// and W2, and its columns of everything [tokens, hidden]. All these are 16 × 16 tiles in the lanes' own order, so that
// no lane ever reads what another has written of them. What goes from one layer to the other over all hidden features
// is summed across the warps in shared memory, in their order; a warp then takes whole rows (tokens) of the sums.
// Tokens and features that do not exist are zeros, with steps of 0.
#pragma once

#include "kernels/cuda/tile.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {

constexpr int mlp_rows = 16;         // tokens of a tile
constexpr int mlp_hidden_tiles = 2;  // of a warp

// A 16 × 16 tile of bf16, as the left operand of the tensor cores has it.
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
// Column sums of a tile over its 16 rows, given to all lanes of a column: at[n][0..1] as at[n][0..1] of a Sums<2>.
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

// One weight (W1ᵀ or W2, or a gradient of them): this warp's tiles [2][F/16] in fp32, in registers where they fit,
// otherwise in memory that only this lane touches.
template <int F, bool in_registers>
class WeightTiles {
    using Geometry = MlpGeometry<F>;
    static constexpr int kept = in_registers ? Geometry::tiles : 1;

  public:
    // Of a state that is not in registers: fp32 [weight_floats], and the same tiles as bf16 [weight_tiles · 32].
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
    // From a learned tensor: the element of hidden feature x and feature y lies at x · hidden_stride + y · stride.
    __device__ void load_learned(const float* from, int hidden_stride, int stride, const TttMlpSizes& sizes) {
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
    // To a part in a learned tensor's order.
    __device__ void store_part(float* to, int hidden_stride, int stride, const TttMlpSizes& sizes) const {
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

// c1 or its gradient: this lane's 4 columns of each hidden tile, the same in the 8 lanes of a column.
struct HiddenBias {
    ColumnSums at[mlp_hidden_tiles];

    __device__ static int column(int h, int n, int i) {
        return static_cast<int>(threadIdx.x) / warp_width * 32 + h * 16 + Sums<2>::column(n, i);
    }
    __device__ void load(const float* from, int count) {
        for_columns([&](int h, int n, int i) { at[h].at[n][i] = column(h, n, i) < count ? from[column(h, n, i)] : 0; });
    }
    __device__ void store(float* to, int count) const {
        for_columns([&](int h, int n, int i) {
            if (lane_index() < 4 && column(h, n, i) < count) to[column(h, n, i)] = at[h].at[n][i];
        });
    }
    __device__ void add(int h, const ColumnSums& sums) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) at[h].at[n][i] += sums.at[n][i];
    }
    template <class Function>
    __device__ static void for_columns(Function&& function) {
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i) function(h, n, i);
    }
};

// τ, λ and e of a mini-batch, zeros where there is no token.
struct MlpSteps {
    float scale[mlp_rows], step[mlp_rows], last[mlp_rows];
};

// Where a mini-batch of a pair lies.
struct MlpPlace {
    std::int64_t row, step;  // of q, k, v and their like; of the step sizes
    int tokens;
};
__device__ inline MlpPlace mlp_place(const TttMlpSizes& sizes, std::int64_t pair, std::int64_t number) {
    const std::int64_t sequence = pair / sizes.heads, head = pair % sizes.heads, start = number * sizes.mini_batch;
    const std::int64_t token = sequence * sizes.length + start, rest = sizes.length - start;
    return {token * sizes.row_stride() + head * sizes.width, token * sizes.heads + head,
            static_cast<int>(rest < sizes.mini_batch ? rest : sizes.mini_batch)};
}

// Pairs of neighbouring elements: f is even, so a row's are aligned to two elements.
template <class T>
struct alignas(2 * sizeof(T)) Two {
    T at[2];
};

// body(row, lane) for the rows of this warp.
template <int F, class Body>
__device__ inline void for_warp_rows(Body&& body) {
    for (int row = static_cast<int>(threadIdx.x) / warp_width; row < mlp_rows; row += MlpGeometry<F>::warps)
        body(row, lane_index());
}
// take(column, first, second) of two neighbouring columns of one row of q, k, v …, zeros where there is nothing.
template <int F, class T, class Take>
__device__ inline void for_row(const T* from, const MlpPlace& place, const TttMlpSizes& sizes, int row, int lane,
                               Take&& take) {
#pragma unroll
    for (int column = 2 * lane; column < F; column += 2 * warp_width) {
        float first = 0, second = 0;
        if (row < place.tokens && column < sizes.width) {
            const auto two = *reinterpret_cast<const Two<T>*>(from + place.row + row * sizes.row_stride() + column);
            first = to_float(two.at[0]);
            second = to_float(two.at[1]);
        }
        take(column, first, second);
    }
}
__device__ inline void store_two(bf16* to, float first, float second) {
    *reinterpret_cast<unsigned*>(to) = pack_pair<bf16>(first, second);
}

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

// fp32 values [tokens, hidden] of this warp that wait for a later step: where a state fills the
// registers, in shared memory that only this lane touches, otherwise in registers.
template <int F>
class Waiting {
    static constexpr bool in_memory = MlpGeometry<F>::on_chip;

  public:
    static constexpr int floats = in_memory ? mlp_hidden_tiles * 2 * MlpGeometry<F>::threads * 4 : 0;
    __device__ explicit Waiting(float* memory) : memory_(memory) {}
    __device__ Sums<2> get(int h) const {
        if constexpr (!in_memory) return values_[h];
        Sums<2> sums;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const Vector16<float> four = load16(memory_ + place(h, n));
#pragma unroll
            for (int i = 0; i < 4; ++i) sums.at[n][i] = four.at[i];
        }
        return sums;
    }
    __device__ void set(int h, const Sums<2>& sums) {
        if constexpr (!in_memory) {
            values_[h] = sums;
            return;
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            Vector16<float> four;
#pragma unroll
            for (int i = 0; i < 4; ++i) four.at[i] = sums.at[n][i];
            store16(memory_ + place(h, n), four);
        }
    }

  private:
    __device__ static int place(int h, int n) {
        return ((h * 2 + n) * MlpGeometry<F>::threads + static_cast<int>(threadIdx.x)) * 4;
    }
    Sums<2> values_[in_memory ? 1 : mlp_hidden_tiles];
    float* memory_;
};

// Shared memory of both kernels, fp32 rows [16, F] and bf16 rows [16, F + 8].
template <int F>
struct MlpShared {
    using Geometry = MlpGeometry<F>;
    float *partial, *scores;
    float *normalised, *difference, *gradient2;            // LNL2's X̂, D, G of this mini-batch
    bf16 *keys, *queries, *gradient2_rows, *stepped_rows;  // the last: -e G2, or in the backward dZ2
    float *norm_weight, *norm_bias, *bias2;                // γ, β; c2, two that take turns
    MlpSteps* steps;                                       // two that take turns

    static constexpr int floats = Geometry::partial_floats + Geometry::score_floats + 3 * Geometry::row_floats +
                                  2 * Geometry::bf16_rows + 4 * F + 6 * mlp_rows;
    // Returns the memory behind.
    __device__ float* place(float* memory) {
        const auto take = [&](int count) {
            float* const taken = memory;
            memory += count;
            return taken;
        };
        partial = take(Geometry::partial_floats);
        scores = take(Geometry::score_floats);
        normalised = take(Geometry::row_floats);
        difference = take(Geometry::row_floats);
        gradient2 = take(Geometry::row_floats);
        for (bf16** rows : {&keys, &queries, &gradient2_rows, &stepped_rows})
            *rows = reinterpret_cast<bf16*>(take(Geometry::bf16_rows / 2));
        norm_weight = take(F);
        norm_bias = take(F);
        bias2 = take(2 * F);
        steps = reinterpret_cast<MlpSteps*>(take(6 * mlp_rows));
        return memory;
    }
};

// τ, λ, e of a mini-batch.
template <class T>
__device__ inline void load_steps(MlpSteps& steps, const TttMlpTask<T>& task, const MlpPlace& place) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= mlp_rows) return;
    const bool exists = i < place.tokens;
    steps.scale[i] = exists ? task.token_scale[i] : 0.0f;
    steps.step[i] = exists ? task.step_size[place.step + static_cast<std::int64_t>(i) * task.sizes.heads] : 0.0f;
    steps.last[i] = exists ? task.token_scale[place.tokens - 1] * steps.step[i] : 0.0f;
}

// This warp's rows of K, and of the targets V - K.
template <class T, int F>
__device__ inline void load_keys(const MlpShared<F>& s, const TttMlpTask<T>& task, const MlpPlace& place) {
    for_warp_rows<F>([&](int row, int lane) {
        for_row<F>(task.k, place, task.sizes, row, lane, [&](int column, float first, float second) {
            store_two(s.keys + row * MlpGeometry<F>::bf16_stride + column, first, second);
            s.difference[row * F + column] = -first;
            s.difference[row * F + column + 1] = -second;
        });
        for_row<F>(task.v, place, task.sizes, row, lane, [&](int column, float first, float second) {
            s.difference[row * F + column] += first;
            s.difference[row * F + column + 1] += second;
        });
    });
}
template <class T, int F>
__device__ inline void load_queries(const MlpShared<F>& s, const TttMlpTask<T>& task, const MlpPlace& place) {
    for_warp_rows<F>([&](int row, int lane) {
        for_row<F>(task.q, place, task.sizes, row, lane, [&](int column, float first, float second) {
            store_two(s.queries + row * MlpGeometry<F>::bf16_stride + column, first, second);
        });
    });
}

// sums[h] += rows · weight(h, ·)ᵀ for this warp's hidden features; `rows` are bf16 rows in shared memory.
template <int F, class Weight>
__device__ inline void multiply_rows(Sums<2> (&sums)[mlp_hidden_tiles], const bf16* rows, Weight&& weight) {
#pragma unroll
    for (int c = 0; c < MlpGeometry<F>::tiles; ++c) {
        const Tile left = load_tile(rows + 16 * c, MlpGeometry<F>::bf16_stride);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums[h], left, weight(h, c));
    }
}
// This warp's part of hidden · weight.
template <int F, class Weight>
__device__ inline void multiply_hidden(float* partial, const Tile (&hidden)[mlp_hidden_tiles], Weight&& weight) {
#pragma unroll
    for (int c = 0; c < MlpGeometry<F>::tiles; ++c) {
        Sums<2> sums;
        sums.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, hidden[h], transposed(weight(h, c)));
        store_partial<F>(partial, c, sums);
    }
}

// The rows of Z2 are there: X̂, D, G2, and G2 and -e G2 as bf16 rows.
template <int F>
__device__ inline void loss_rows(const MlpShared<F>& s, const MlpSteps& steps, int width) {
    for_warp_rows<F>([&](int row, int lane) {
        float *const normalised = s.normalised + row * F, *const gradient = s.gradient2 + row * F;
        const float inverse = normalise_row(normalised, width, lane);
        loss_row(normalised, inverse, s.difference + row * F, gradient, s.norm_weight, s.norm_bias, width, lane);
#pragma unroll
        for (int j = lane; j < F; j += warp_width) {
            if (j >= width) gradient[j] = 0;
            s.gradient2_rows[row * MlpGeometry<F>::bf16_stride + j] = from_float<bf16>(gradient[j]);
            s.stepped_rows[row * MlpGeometry<F>::bf16_stride + j] = from_float<bf16>(-steps.last[row] * gradient[j]);
        }
    });
}

// The state's update: W1ᵀ -= G1ᵀ (e K), W2 -= X2ᵀ (e G2); the steps are in `stepped1` = -e G1 and in stepped_rows.
template <int F, class Weights>
__device__ inline void update_weights(const MlpShared<F>& s, Weights& weight1, Weights& weight2,
                                      const Tile (&stepped1)[mlp_hidden_tiles],
                                      const Tile (&hidden)[mlp_hidden_tiles]) {
    const Tile left1[mlp_hidden_tiles] = {transposed(stepped1[0]), transposed(stepped1[1])};
    const Tile left2[mlp_hidden_tiles] = {transposed(hidden[0]), transposed(hidden[1])};
#pragma unroll
    for (int c = 0; c < MlpGeometry<F>::tiles; ++c) {
        const Tile key = load_tile_transposed(s.keys + 16 * c, MlpGeometry<F>::bf16_stride);
        const Tile gradient = load_tile_transposed(s.stepped_rows + 16 * c, MlpGeometry<F>::bf16_stride);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            Sums<2> sums = weight1.get(h, c);
            multiply(sums, left1[h], key);
            weight1.set(h, c, sums);
            sums = weight2.get(h, c);
            multiply(sums, left2[h], gradient);
            weight2.set(h, c, sums);
        }
    }
}
// c2' = c2 - Σ e G2, a thread to a feature.
template <int F>
__device__ inline void update_bias2(float* to, const float* from, const float* gradient2, const MlpSteps& steps) {
    const int j = static_cast<int>(threadIdx.x);
    if (j >= F) return;
    float sum = 0;
#pragma unroll
    for (int row = 0; row < mlp_rows; ++row) sum = fmaf(steps.last[row], gradient2[row * F + j], sum);
    to[j] = from[j] - sum;
}

// -P1 = -M ⊙ E ⊙ (Q Kᵀ + 1), made by every warp for itself; S1 goes to score(row, column, value).
template <int F, class Score>
__device__ inline Tile negative_factor1(const MlpShared<F>& s, const MlpSteps& steps, Score&& score) {
    Sums<2> sums;
    sums.clear();
#pragma unroll
    for (int c = 0; c < MlpGeometry<F>::tiles; ++c)
        multiply(sums, load_tile(s.queries + 16 * c, MlpGeometry<F>::bf16_stride),
                 load_tile(s.keys + 16 * c, MlpGeometry<F>::bf16_stride));
    for_sums([&](int n, int i) {
        const int row = Sums<2>::row(i), column = Sums<2>::column(n, i);
        const float value = sums.at[n][i] + 1;
        score(row, column, value);
        sums.at[n][i] = column <= row ? -steps.scale[row] * steps.step[column] * value : 0.0f;
    });
    return packed(sums);
}

// From the parts of S2 and of X̄2 W2: a row of Z̄2 = X̄2 W2 + c2 - P2 G2. Lane i < 16 has S2 and P2 at column i.
template <int F>
__device__ inline void read2_row(float* z, const MlpShared<F>& s, const MlpSteps& steps, const float* bias2, int row,
                                 int lane, float& score, float& factor) {
    score = lane < mlp_rows ? score_sum<F>(s.scores, row, lane) + 1 : 0.0f;
    factor = lane <= row ? steps.scale[row] * steps.step[lane & 15] * score : 0.0f;
    float sums[F / warp_width];
#pragma unroll
    for (int u = 0; u < F / warp_width; ++u) {
        const int j = lane + u * warp_width;
        sums[u] = partial_sum<F>(s.partial, row, j) + bias2[j];
    }
#pragma unroll
    for (int i = 0; i < mlp_rows; ++i) {
        const float p = __shfl_sync(all_lanes, factor, i);
#pragma unroll
        for (int u = 0; u < F / warp_width; ++u) sums[u] -= p * s.gradient2[i * F + lane + u * warp_width];
    }
#pragma unroll
    for (int u = 0; u < F / warp_width; ++u) z[lane + u * warp_width] = sums[u];
}

}  // namespace lockstep::kernels::cuda
