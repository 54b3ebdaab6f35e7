// TTT-MLP on tensor cores: a block's shared memory, and the steps of a mini-batch shared by the forward and the
// backward's recomputation of states.
#pragma once

#include "kernels/cuda/ttt_mlp_rows.hpp"

namespace lockstep::kernels::cuda {

// τ, λ and e of a mini-batch, zeros for nonexistent tokens.
struct MlpSteps {
    float scale[mlp_rows], step[mlp_rows], last[mlp_rows];
};

// Shared memory of both kernels, fp32 rows [16, F] and bf16 rows [16, F + 8].
template <int F>
struct MlpShared {
    using Geometry = MlpGeometry<F>;
    float *partial, *difference, *gradient2;         // the last two: V - K, in the backward later D; G2
    bf16 *keys, *queries, *stepped_keys;             // K, Q, -e K
    bf16 *gradient2_rows, *stepped_rows;             // G2; -e G2, or in the backward dZ2
    float *norm_weight, *norm_bias, *bias1, *bias2;  // γ, β; c1; c2, double-buffered
    float* allowed;                                  // M⊙E in a warp's order
    MlpSteps* steps;                                 // double-buffered

    static constexpr int floats =
        Geometry::partial_floats + 2 * Geometry::row_floats + 5 * Geometry::bf16_rows / 2 + 8 * F + 256 + 6 * mlp_rows;
    // Returns the memory after it.
    __device__ float* place(float* memory) {
        const auto take = [&](int count) {
            float* const taken = memory;
            memory += count;
            return taken;
        };
        partial = take(Geometry::partial_floats);
        difference = take(Geometry::row_floats);
        gradient2 = take(Geometry::row_floats);
        for (bf16** rows : {&keys, &queries, &stepped_keys, &gradient2_rows, &stepped_rows})
            *rows = reinterpret_cast<bf16*>(take(Geometry::bf16_rows / 2));
        norm_weight = take(F);
        norm_bias = take(F);
        bias1 = take(4 * F);
        bias2 = take(2 * F);
        allowed = take(256);
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
// e of this lane's row, before the steps are there for all.
template <class T, int F>
__device__ inline float last_step(const TttMlpTask<T>& task, const MlpPlace& place, const MlpRow<F>& row) {
    if (row.row >= place.tokens) return 0;
    return task.token_scale[place.tokens - 1] *
           task.step_size[place.step + static_cast<std::int64_t>(row.row) * task.sizes.heads];
}

// This lane's part of K, and of the targets V - K.
template <class T, int F>
__device__ inline RowValues<F> load_keys(const MlpShared<F>& s, const TttMlpTask<T>& task, const MlpPlace& place,
                                         const MlpRow<F>& row) {
    const RowValues<F> key = row.load(task.k, place);
    RowValues<F> target = row.load(task.v, place);
    row.store(s.keys, key);
#pragma unroll
    for (int i = 0; i < RowValues<F>::count; ++i) target.at[i] -= key.at[i];
    row.store(s.difference, target);
    return key;
}
template <int F>
__device__ inline void store_scaled(const MlpRow<F>& row, bf16* rows, RowValues<F> values, float factor) {
#pragma unroll
    for (int i = 0; i < RowValues<F>::count; ++i) values.at[i] *= factor;
    row.store(rows, values);
}

// sums[h] += rows · weight(h, ·)ᵀ for this warp's hidden features; `rows` are bf16 rows in shared memory.
template <int F, class Weight>
__device__ inline void multiply_rows(Sums<2> (&sums)[mlp_hidden_tiles], const bf16* rows, Weight&& weight) {
    using Geometry = MlpGeometry<F>;
#pragma unroll Geometry::unrolled
    for (int c = 0; c < Geometry::tiles; ++c) {
        const Tile left = load_tile(rows + 16 * c, Geometry::bf16_stride);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums[h], left, weight(h, c));
    }
}
// This warp's part of hidden · weight.
template <int F, class Weight>
__device__ inline void multiply_hidden(float* partial, const Tile (&hidden)[mlp_hidden_tiles], Weight&& weight) {
    using Geometry = MlpGeometry<F>;
#pragma unroll Geometry::unrolled
    for (int c = 0; c < Geometry::tiles; ++c) {
        Sums<2> sums;
        sums.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, hidden[h], transposed(weight(h, c)));
        store_partial<F>(partial, c, sums);
    }
}
// This warp's part of hidden · weight + factor · rows, `factor` [16, 16].
template <int F, class Weight>
__device__ inline void multiply_hidden(float* partial, const Tile (&hidden)[mlp_hidden_tiles], Weight&& weight,
                                       const Tile& factor, const bf16* rows) {
    using Geometry = MlpGeometry<F>;
#pragma unroll Geometry::unrolled
    for (int c = 0; c < Geometry::tiles; ++c) {
        Sums<2> sums;
        sums.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, hidden[h], transposed(weight(h, c)));
        multiply(sums, factor, load_right_tile_transposed(rows + 16 * c, Geometry::bf16_stride));
        store_partial<F>(partial, c, sums);
    }
}

// X2 and φ'(Z1), from Z1 in `slope`.
__device__ inline void apply_gelu(Tile (&hidden)[mlp_hidden_tiles], Sums<2> (&slope)[mlp_hidden_tiles]) {
#pragma unroll
    for (int h = 0; h < mlp_hidden_tiles; ++h) {
        Sums<2> value;
        for_sums([&](int n, int i) {
            const GeluCurve gelu = gelu_curve(slope[h].at[n][i]);
            value.at[n][i] = gelu.value;
            slope[h].at[n][i] = gelu.slope;
        });
        hidden[h] = packed(value);
    }
}

// Z2 is there, as parts: G2 in fp32, and G2 and -e G2 as bf16 rows. Returns Z2.
template <int F>
__device__ inline RowValues<F> loss_rows(const MlpShared<F>& s, const MlpRow<F>& row, const MlpSteps& steps,
                                         const float* bias2) {
    RowValues<F> z = row.partial_sum(s.partial);
    const RowValues<F> bias = row.load_row(bias2);
#pragma unroll
    for (int i = 0; i < RowValues<F>::count; ++i) z.at[i] += bias.at[i];
    const LossRow<F> loss = loss_row(row, z, row.load(s.difference), s.norm_weight, s.norm_bias);
    row.store(s.gradient2, loss.gradient);
    row.store(s.gradient2_rows, loss.gradient);
    store_scaled(row, s.stepped_rows, loss.gradient, -steps.last[row.row]);
    return z;
}

// The state's update: W1ᵀ -= G1ᵀ (e K), W2 -= X2ᵀ (e G2), c1 -= Σ e G1; `gradient1_transposed` is G1ᵀ, the steps are in
// the rows of -e K and -e G2.
template <int F, class Weights>
__device__ inline void update_weights(const MlpShared<F>& s, const bf16* stepped_keys, Weights& weight1,
                                      Weights& weight2, const Tile (&gradient1_transposed)[mlp_hidden_tiles],
                                      const Tile (&hidden)[mlp_hidden_tiles]) {
    using Geometry = MlpGeometry<F>;
    const Tile left2[mlp_hidden_tiles] = {transposed(hidden[0]), transposed(hidden[1])};
#pragma unroll Geometry::unrolled
    for (int c = 0; c < Geometry::tiles; ++c) {
        const Tile key = load_right_tile_transposed(stepped_keys + 16 * c, Geometry::bf16_stride);
        const Tile gradient = load_right_tile_transposed(s.stepped_rows + 16 * c, Geometry::bf16_stride);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            Sums<2> sums = weight1.get(h, c);
            multiply(sums, gradient1_transposed[h], key);
            weight1.set(h, c, sums);
            sums = weight2.get(h, c);
            multiply(sums, left2[h], gradient);
            weight2.set(h, c, sums);
        }
    }
}
// c1 -= Σ e G1 for this warp's hidden features, which no other warp reads.
template <int F>
__device__ inline void update_bias1(const MlpShared<F>& s, const Sums<2> (&gradient1)[mlp_hidden_tiles],
                                    const MlpSteps& steps) {
    const float weights[2] = {steps.last[Sums<2>::row(0)], steps.last[Sums<2>::row(2)]};
    s.bias1[own_hidden_column()] -= hidden_sum(gradient1, weights);
    __syncwarp(all_lanes);
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

// M⊙E of this lane's places.
__device__ inline Sums<2> allowed_steps(const MlpSteps& steps) {
    Sums<2> sums;
    for_sums([&](int n, int i) {
        const int row = Sums<2>::row(i), column = Sums<2>::column(n, i);
        if (n == 1 && i < 2)
            sums.at[n][i] = 0;
        else
            sums.at[n][i] = column <= row ? steps.scale[row] * steps.step[column] : 0.0f;
    });
    return sums;
}
// -factor ⊙ score, where factor is 0 above the diagonal.
__device__ inline Sums<2> negative_product(const Sums<2>& factor, const Sums<2>& score) {
    Sums<2> sums;
    for_sums([&](int n, int i) { sums.at[n][i] = n == 1 && i < 2 ? 0.0f : -factor.at[n][i] * score.at[n][i]; });
    return sums;
}
// S1 = Q Kᵀ + 1.
template <int F>
__device__ inline Sums<2> first_scores(const MlpShared<F>& s) {
    using Geometry = MlpGeometry<F>;
    Sums<2> sums;
    for_sums([&](int n, int i) { sums.at[n][i] = 1; });
#pragma unroll Geometry::unrolled
    for (int c = 0; c < Geometry::tiles; ++c)
        multiply(sums, load_tile(s.queries + 16 * c, Geometry::bf16_stride),
                 load_right_tile(s.keys + 16 * c, Geometry::bf16_stride));
    return sums;
}
// This warp's part of S2 = X̄2 X2ᵀ + 1; the first warp's has the 1.
__device__ inline Sums<2> second_scores(const Tile (&read_hidden)[mlp_hidden_tiles],
                                        const Tile (&hidden)[mlp_hidden_tiles]) {
    const float bonus = threadIdx.x < warp_width ? 1.0f : 0.0f;
    Sums<2> sums;
    for_sums([&](int n, int i) { sums.at[n][i] = bonus; });
#pragma unroll
    for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, read_hidden[h], hidden[h]);
    return sums;
}

}  // namespace lockstep::kernels::cuda
