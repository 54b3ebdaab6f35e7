// TTT-MLP on tensor cores: a block's shared memory, and the steps of a mini-batch shared by the forward and the
// backward's recomputation of states.
#pragma once

#include "kernels/cuda/ttt_mlp_tile.hpp"

namespace lockstep::kernels::cuda {

// τ, λ and e of a mini-batch, zeros for nonexistent tokens.
struct MlpSteps {
    float scale[mlp_rows], step[mlp_rows], last[mlp_rows];
};

// Position of a mini-batch of a pair.
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

// body(row, lane) for the rows of this warp.
template <int F, class Body>
__device__ inline void for_warp_rows(Body&& body) {
    for (int row = static_cast<int>(threadIdx.x) / warp_width; row < mlp_rows; row += MlpGeometry<F>::warps)
        body(row, lane_index());
}
// Calls take(column, first, second) for two neighbouring columns of one row of q, k, v …, zeros out of range.
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

// Shared memory of both kernels, fp32 rows [16, F] and bf16 rows [16, F + 8].
template <int F>
struct MlpShared {
    using Geometry = MlpGeometry<F>;
    float *partial, *scores;
    float *normalised, *difference, *gradient2;            // LNL2's X̂, D, G of this mini-batch
    bf16 *keys, *queries, *gradient2_rows, *stepped_rows;  // the last: -e G2, or in the backward dZ2
    float *norm_weight, *norm_bias, *bias1, *bias2;        // γ, β; c1; c2, double-buffered
    MlpSteps* steps;                                       // double-buffered

    static constexpr int floats = Geometry::partial_floats + Geometry::score_floats + 3 * Geometry::row_floats +
                                  2 * Geometry::bf16_rows + 8 * F + 6 * mlp_rows;
    // Returns the memory after it.
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
        bias1 = take(4 * F);
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

// -P1 = -M ⊙ E ⊙ (Q Kᵀ + 1), computed by every warp for itself; S1 goes to score(row, column, value).
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
