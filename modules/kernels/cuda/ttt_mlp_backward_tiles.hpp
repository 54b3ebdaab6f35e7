// TTT-MLP backward on tensor cores: its memory, and the recomputed states of a group of mini-batches.
#pragma once

#include "kernels/cuda/ttt_mlp_block.hpp"

namespace lockstep::kernels::cuda {

// Whether a mini-batch's weights are copied into shared memory before they are needed. A block of an A100 has no room;
// all GPUs of compute capability 9.0 and more that may train (163 KB a block at least) have 227 KB.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool mlp_copies_ahead = false;
#else
constexpr bool mlp_copies_ahead = true;
#endif

// What the group's recomputation saves for each mini-batch, in device memory: the state's weights as paired bf16
// tiles, c1 [4F], c2 [F], and Z2 [16, F].
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
    // Into the L2 cache: the slots of all blocks together are larger than that.
    __device__ void prefetch() const {
        constexpr int line = 32;
        const auto* const memory = reinterpret_cast<const float*>(weight1);
        for (int at = static_cast<int>(threadIdx.x) * line; at < floats; at += Geometry::threads * line)
            prefetch_l2(memory + at);
    }
};

// A slot's weights as the way back reads them, in shared memory if there is room: each lane copies and reads its own
// tiles.
template <int F>
class MlpSlotWeights {
    using Geometry = MlpGeometry<F>;
    static constexpr bool ahead = Geometry::on_chip && mlp_copies_ahead;
    static constexpr int tiles = Geometry::weight_tiles * warp_width;  // of a weight

  public:
    static constexpr int floats = Geometry::on_chip ? Geometry::weight_floats : 0;
    __device__ explicit MlpSlotWeights(float* memory) : tiles_(reinterpret_cast<Tile*>(memory)) {}
    // Begins the copies. No lane may read its tiles of the slot before any more.
    __device__ void copy(const MlpSlot<F>& slot) const {
        if constexpr (ahead) {
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll
                for (int c = 0; c < Geometry::tiles; ++c) {
                    const int at = WeightTiles<F, true>::tile_place(h, c);
                    copy_async_16(tiles_ + at, slot.weight1 + at);
                    copy_async_16(tiles_ + tiles + at, slot.weight2 + at);
                }
            copy_async_commit();
        }
    }
    // Ends them.
    __device__ void await() const {
        if constexpr (ahead) copy_async_wait<0>();
    }
    __device__ const Tile* first(const MlpSlot<F>& slot) const {
        return ahead ? tiles_ : slot.weight1;
    }
    __device__ const Tile* second(const MlpSlot<F>& slot) const {
        return ahead ? tiles_ + tiles : slot.weight2;
    }

  private:
    Tile* tiles_;
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
    float* normalised;                         // LNL2's X̂
    float *dout, *ddifference;                 // dO; later dD
    float* dbias2_rows;                        // dZ̄2 + dZ2, what c2's gradient is summed from
    float *norm_weight_sums, *norm_bias_sums;  // of dγ and dβ over the whole sequence, rows as the lanes have them
    bf16 *dread2_rows, *dread2_rest;           // dZ̄2, and what its rounding loses
    bf16* dloss_rows;                          // dZ2
    float* score1;                             // S1 in a warp's order
    float *dstep_parts, *dscale_parts;         // Σ_i τ_i dE_ij and Σ_j λ_j dE_ij, each warp's part [warps, 16]
    float *dlast_parts, *dlast;                // de: each warp's part [warps, 16], whole [16]
    float *inverse, *projection;               // 1/σ and ⟨U X̂⟩ [16]
    float* token_scale_sums;                   // of dτ over the whole sequence [16]
    float *dbias1, *dbias2;                    // dc1 [4F], dc2 [F]
    float* waiting[3];
    float *read_hidden, *factors;  // X̄2; P2 and dS1: operand tiles that wait
    Tile* factor1;                 // -P1
    float* weights;                // MlpSlotWeights, if they are copied ahead

    static constexpr int floats = 5 * Geometry::row_floats + Geometry::bf16_rows / 2 + 256 +
                                  3 * Geometry::warps * mlp_rows + 4 * mlp_rows + 5 * F + 3 * Waiting<F>::floats +
                                  WaitingTiles<F, 5>::floats + 4 * warp_width;
    // -e K and -e G2 are not needed at the same time.
    __device__ void place(float* memory, bf16* stepped_keys, bf16* stepped_rows) {
        const auto take = [&](int count) {
            float* const taken = memory;
            memory += count;
            return taken;
        };
        for (float** to : {&normalised, &dout, &dbias2_rows, &norm_weight_sums, &norm_bias_sums})
            *to = take(Geometry::row_floats);
        ddifference = dout;
        dread2_rows = reinterpret_cast<bf16*>(take(Geometry::bf16_rows / 2));
        dread2_rest = stepped_keys;
        dloss_rows = stepped_rows;
        score1 = take(256);
        for (float** to : {&dstep_parts, &dscale_parts, &dlast_parts}) *to = take(Geometry::warps * mlp_rows);
        for (float** to : {&dlast, &inverse, &projection, &token_scale_sums}) *to = take(mlp_rows);
        dbias1 = take(4 * F);
        dbias2 = take(F);
        for (float*& to : waiting) to = take(Waiting<F>::floats);
        read_hidden = take(WaitingTiles<F, 2>::floats);
        factors = take(WaitingTiles<F, 3>::floats);
        factor1 = reinterpret_cast<Tile*>(take(4 * warp_width));
        weights = memory;
    }
};

// Recomputes the states of a piece's mini-batches [begin, end) into their slots, from the saved state at `begin`.
template <class T, int F>
__device__ void remake_states(const TttMlpTask<T>& task, const MlpShared<F>& s, const MlpRow<F>& row,
                              const MlpBackwardWork<F>& work, const MlpPiece& piece, int pair, int begin, int end) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    Weights weight1(work.state, work.tiles);
    Weights weight2(work.state + Geometry::weight_floats, work.tiles + Geometry::weight_tiles * warp_width);
    if (begin == 0) {
        const MlpStart start = mlp_start(task, piece, pair);
        const std::int64_t matrix = start.number * f * sizes.hidden;
        // On chip: by way of the slots, before they are filled.
        float* const memory = Geometry::on_chip ? work.slots : work.state;
        place_state<F>(memory, Geometry::on_chip ? nullptr : work.tiles, start.models.weight1 + matrix,
                       start.models.weight2 + matrix, sizes);
        if (Geometry::on_chip) {
            weight1.load_all(memory);
            weight2.load_all(memory + Geometry::weight_floats);
        }
        s.bias1[thread] = thread < sizes.hidden ? start.models.bias1[start.number * sizes.hidden + thread] : 0.0f;
        if (thread < F) s.bias2[thread] = thread < f ? start.models.bias2[start.number * f + thread] : 0.0f;
        if (Geometry::on_chip) __syncthreads();  // all have loaded what the slots will overwrite
    } else {
        const float* const kept = mlp_saved_state(task, piece, pair, begin);
        weight1.load_all(kept);
        weight2.load_all(kept + Geometry::weight_floats);
        s.bias1[thread] = kept[2 * Geometry::weight_floats + thread];
        if (thread < F) s.bias2[thread] = kept[2 * Geometry::weight_floats + 4 * F + thread];
    }
    int turn = 0;
    for (int number = begin; number < end; ++number, turn ^= 1) {
        const MlpPlace place = mlp_place(sizes, piece, pair, number);
        const MlpSlot<F> slot(work.slots + (number - begin) * MlpSlot<F>::floats);
        MlpSteps& steps = s.steps[turn];
        float *const bias2 = s.bias2 + turn * F, *const next_bias2 = s.bias2 + (turn ^ 1) * F;
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
#pragma unroll Geometry::unrolled
            for (int c = 0; c < Geometry::tiles; ++c) {
                slot.weight1[Weights::tile_place(h, c)] = paired(weight1.tile(h, c));
                slot.weight2[Weights::tile_place(h, c)] = paired(weight2.tile(h, c));
            }
        slot.bias1[thread] = s.bias1[thread];
        if (thread < F) slot.bias2[thread] = bias2[thread];
        bf16* const stepped_keys = turn ? s.queries : s.stepped_keys;  // in turn: no barrier at the end
        load_steps(steps, task, place);
        if (row.here()) {
            store_scaled(row, stepped_keys, load_keys(s, task, place, row), -last_step(task, place, row));
            const MlpPlace next = mlp_place(sizes, piece, pair, number + 1);
            row.prefetch(task.k, next);
            row.prefetch(task.v, next);
        }
        __syncthreads();
        Sums<2> slope[mlp_hidden_tiles] = {bias_sums(s.bias1, 0), bias_sums(s.bias1, 1)};
        Tile hidden[mlp_hidden_tiles];
        multiply_rows<F>(slope, s.keys, [&](int h, int c) { return weight1.tile(h, c); });
        apply_gelu(hidden, slope);
        const auto second = [&](int h, int c) { return weight2.tile(h, c); };
        multiply_hidden<F>(s.partial, hidden, second);
        __syncthreads();
        if (row.here()) row.store(slot.output, loss_rows(s, row, steps, bias2));
        if (number + 1 == end) break;
        __syncthreads();
        Sums<2> gradient1[mlp_hidden_tiles];
        Tile gradient1_transposed[mlp_hidden_tiles];
        gradient1[0].clear();
        gradient1[1].clear();
        multiply_rows<F>(gradient1, s.gradient2_rows, second);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            for_sums([&](int n, int i) { gradient1[h].at[n][i] *= slope[h].at[n][i]; });
            gradient1_transposed[h] = transposed(packed(gradient1[h]));
        }
        update_bias1(s, gradient1, steps);
        update_weights<F>(s, stepped_keys, weight1, weight2, gradient1_transposed, hidden);
        update_bias2<F>(next_bias2, bias2, s.gradient2, steps);
    }
    __syncthreads();
}

}  // namespace lockstep::kernels::cuda
