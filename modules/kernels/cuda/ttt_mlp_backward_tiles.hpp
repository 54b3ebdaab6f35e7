// TTT-MLP backward on tensor cores: its memory, and the recomputed states of a group of mini-batches.
#pragma once

#include "kernels/cuda/ttt_mlp_block.hpp"

namespace lockstep::kernels::cuda {

// What the group's recomputation saves for each mini-batch, in device memory: the state's weights as bf16 tiles, c1
// [4F], c2 [F], and Z2 [16, F].
template <int F>
struct MlpSlot {
    using Geometry = MlpGeometry<F>;
    Tile *weight1, *weight2;
    float *bias1, *bias2, *output;

    static constexpr int floats = Geometry::weight_floats + 4 * F + F + Geometry::row_floats;
    __device__ explicit MlpSlot(float* memory)
        : weight1(reinterpret_cast<Tile*>(memory)),
          weight2(weight1 + Geometry::weight_tiles * warp_width),
          bias1(memory + Geometry::weight_floats),
          bias2(bias1 + 4 * F),
          output(bias2 + F) {}
};

// A block's device memory: the gradient of the state when not in registers, the state, the slots.
template <int F>
struct MlpBackwardWork {
    using Geometry = MlpGeometry<F>;
    float *dstate, *state;
    Tile *dtiles, *tiles;  // bf16 copies, if a state is not kept in registers
    float* slots;

    static constexpr int state_floats = Geometry::on_chip ? 0 : 3 * Geometry::weight_floats;
    static constexpr int dstate_floats = (Geometry::on_chip ? 2 : 3) * Geometry::weight_floats;
    static constexpr int fixed_floats = dstate_floats + state_floats;  // without the slots
    __device__ explicit MlpBackwardWork(float* memory)
        : dstate(memory),
          state(memory + dstate_floats),
          dtiles(reinterpret_cast<Tile*>(memory + 2 * Geometry::weight_floats)),
          tiles(reinterpret_cast<Tile*>(memory + dstate_floats + 2 * Geometry::weight_floats)),
          slots(memory + dstate_floats + state_floats) {}
};

// Shared memory of the backward, in addition to MlpShared.
template <int F>
struct MlpBackwardShared {
    using Geometry = MlpGeometry<F>;
    static constexpr int square = mlp_rows * mlp_rows;
    float *dout, *read2, *dread2;  // dO, later dG2 and dZ2; X̂ of the output, later dD; dZ̄2
    float *dgradient2, *ddifference;
    bf16 *dread2_rows, *dloss_rows;    // dZ̄2, dZ2
    float *score1, *score2, *factor2;  // S1, S2, P2 [16, 16]
    float *dscore1, *dscale;           // dS1, dE [16, 16]
    float *dlast_parts, *dlast;        // de: each warp's part [warps, 16], whole [16]
    float *inverse, *projection;       // 1/σ and ⟨U X̂⟩ [16]
    float *dbias1, *dbias1_change;     // dc1 [4F], and what this mini-batch adds
    float* dbias2;                     // dc2 [F]
    float* waiting[3];

    static constexpr int floats = 3 * Geometry::row_floats + Geometry::bf16_rows / 2 + 5 * square +
                                  Geometry::warps * mlp_rows + 3 * mlp_rows + 9 * F + 3 * Waiting<F>::floats;
    __device__ void place(float* memory, bf16* stepped_rows) {
        const auto take = [&](int count) {
            float* const taken = memory;
            memory += count;
            return taken;
        };
        dgradient2 = dout = take(Geometry::row_floats);
        ddifference = read2 = take(Geometry::row_floats);
        dread2 = take(Geometry::row_floats);
        dread2_rows = reinterpret_cast<bf16*>(take(Geometry::bf16_rows / 2));
        dloss_rows = stepped_rows;
        for (float** to : {&score1, &score2, &factor2, &dscore1, &dscale}) *to = take(square);
        dlast_parts = take(Geometry::warps * mlp_rows);
        for (float** to : {&dlast, &inverse, &projection}) *to = take(mlp_rows);
        dbias1 = take(4 * F);
        dbias1_change = take(4 * F);
        dbias2 = take(F);
        for (float*& to : waiting) to = take(Waiting<F>::floats);
    }
};

// A thread's sums over the whole sequence: of dγ and dβ for feature `thread`, of dτ for token `thread`.
struct MlpThreadSums {
    float norm_weight, norm_bias, token_scale;
};

// Recomputes the states of mini-batches [begin, end) into their slots, from the saved state at `begin`.
template <class T, int F>
__device__ void remake_states(const TttMlpTask<T>& task, const MlpShared<F>& s, const MlpBackwardWork<F>& work,
                              std::int64_t pair, std::int64_t begin, std::int64_t end) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    Weights weight1(work.state, work.tiles);
    Weights weight2(work.state + Geometry::weight_floats, work.tiles + Geometry::weight_tiles * warp_width);
    if (begin == 0) {
        const std::int64_t start = pair % task.start_models, matrix = start * f * sizes.hidden;
        weight1.load_model(task.start.weight1 + matrix, 1, sizes.hidden, sizes);
        weight2.load_model(task.start.weight2 + matrix, f, 1, sizes);
        s.bias1[thread] = thread < sizes.hidden ? task.start.bias1[start * sizes.hidden + thread] : 0.0f;
        if (thread < F) s.bias2[thread] = thread < f ? task.start.bias2[start * f + thread] : 0.0f;
    } else {
        const float* const kept =
            task.saved + (pair * sizes.kept_states() + begin / sizes.group - 1) * sizes.kept_count();
        weight1.load_all(kept);
        weight2.load_all(kept + Geometry::weight_floats);
        s.bias1[thread] = kept[2 * Geometry::weight_floats + thread];
        if (thread < F) s.bias2[thread] = kept[2 * Geometry::weight_floats + 4 * F + thread];
    }
    int turn = 0;
    for (std::int64_t number = begin; number < end; ++number, turn ^= 1) {
        const MlpPlace place = mlp_place(sizes, pair, number);
        const MlpSlot<F> slot(work.slots + (number - begin) * MlpSlot<F>::floats);
        MlpSteps& steps = s.steps[turn];
        float *const bias2 = s.bias2 + turn * F, *const next_bias2 = s.bias2 + (turn ^ 1) * F;
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) {
                slot.weight1[Weights::tile_place(h, c)] = weight1.tile(h, c);
                slot.weight2[Weights::tile_place(h, c)] = weight2.tile(h, c);
            }
        slot.bias1[thread] = s.bias1[thread];
        if (thread < F) slot.bias2[thread] = bias2[thread];
        load_steps(steps, task, place);
        load_keys<T, F>(s, task, place);
        __syncthreads();
        Sums<2> slope[mlp_hidden_tiles];
        Tile hidden[mlp_hidden_tiles];
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
            for_sums([&](int n, int i) { slope[h].at[n][i] = s.bias1[hidden_column(h, n, i)]; });
        multiply_rows<F>(slope, s.keys, [&](int h, int c) { return weight1.tile(h, c); });
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            Sums<2> value;
            for_sums([&](int n, int i) {
                const Gelu gelu = gelu_at(slope[h].at[n][i]);
                value.at[n][i] = gelu.value;
                slope[h].at[n][i] = gelu.slope;
            });
            hidden[h] = packed(value);
        }
        const auto second = [&](int h, int c) { return weight2.tile(h, c); };
        multiply_hidden<F>(s.partial, hidden, second);
        __syncthreads();
        for_warp_rows<F>([&](int row, int lane) {
#pragma unroll
            for (int j = lane; j < F; j += warp_width)
                slot.output[row * F + j] = s.normalised[row * F + j] = partial_sum<F>(s.partial, row, j) + bias2[j];
        });
        if (number + 1 < end) {
            loss_rows<F>(s, steps, f);
            __syncthreads();
            Sums<2> gradient1[mlp_hidden_tiles];
            Tile stepped1[mlp_hidden_tiles];
            gradient1[0].clear();
            gradient1[1].clear();
            multiply_rows<F>(gradient1, s.gradient2_rows, second);
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                for_sums(
                    [&](int n, int i) { gradient1[h].at[n][i] *= slope[h].at[n][i] * -steps.last[Sums<2>::row(i)]; });
                stepped1[h] = packed(gradient1[h]);
                add_to_bias(s.bias1, h, column_sums(gradient1[h]));
            }
            update_weights<F>(s, weight1, weight2, stepped1, hidden);
            update_bias2<F>(next_bias2, bias2, s.gradient2, steps);
        }
        __syncthreads();
    }
}

}  // namespace lockstep::kernels::cuda
