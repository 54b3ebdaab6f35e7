// TTT-MLP forward.
#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_block.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int forward_factor_floats = 4 * warp_width;

template <class T, int F, bool Pieces>
__global__ void __launch_bounds__(MlpGeometry<F>::threads, 1) ttt_mlp_forward_tiles(TttMlpTask<T> task) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    MlpShared<F> s;
    float* const behind = s.place(shared_memory<float>());
    auto* const factor1 = reinterpret_cast<Tile*>(behind);  // -P1
    Waiting<F> read1(behind + forward_factor_floats);       // Q W1 + c1
    float* const work = task.work + blockIdx.x * task.work_count;
    auto* const tiles = reinterpret_cast<Tile*>(work + 2 * Geometry::weight_floats);
    Weights weight1(work, tiles);
    Weights weight2(work + Geometry::weight_floats, tiles + Geometry::weight_tiles * warp_width);
    const MlpRow<F> row(sizes);

    for (int pair = static_cast<int>(blockIdx.x); pair < sizes.pair_count; pair += static_cast<int>(gridDim.x)) {
        const std::int64_t head = pair % sizes.heads;
        int turn = 0, begin = 0;
        do {
            const MlpPiece piece = mlp_piece<Pieces>(task, task.pieces.from(pair / sizes.heads, begin));
            const MlpStart start = mlp_start(task, piece, pair);
            const std::int64_t matrix = start.number * f * sizes.hidden;
            __syncthreads();  // the piece before is done with shared memory
            place_state<F>(work, Geometry::on_chip ? nullptr : tiles, start.models.weight1 + matrix,
                           start.models.weight2 + matrix, sizes);
            if (Geometry::on_chip) {
                weight1.load_all(work);
                weight2.load_all(work + Geometry::weight_floats);
            }
            s.bias1[thread] = thread < sizes.hidden ? start.models.bias1[start.number * sizes.hidden + thread] : 0.0f;
            if (thread < F) {
                s.norm_weight[thread] = thread < f ? task.norm_weight[head * f + thread] : 0.0f;
                s.norm_bias[thread] = thread < f ? task.norm_bias[head * f + thread] : 0.0f;
                s.bias2[thread] = thread < f ? start.models.bias2[start.number * f + thread] : 0.0f;
            }
            turn = 0;
            for (int number = 0; number < piece.count; ++number, turn ^= 1) {
                const MlpPlace place = mlp_place(sizes, piece, pair, number);
                MlpSteps& steps = s.steps[turn];
                float *const bias2 = s.bias2 + turn * F, *const next_bias2 = s.bias2 + (turn ^ 1) * F;
                if (task.saved && number > 0 && number % sizes.group == 0) {
                    float* const kept = mlp_saved_state(task, piece, pair, number);
                    weight1.store_all(kept);
                    weight2.store_all(kept + Geometry::weight_floats);
                    kept[2 * Geometry::weight_floats + thread] = s.bias1[thread];
                    if (thread < F) kept[2 * Geometry::weight_floats + 4 * F + thread] = bias2[thread];
                }
                load_steps(steps, task, place);
                if (row.here()) {
                    store_scaled(row, s.stepped_keys, load_keys(s, task, place, row), -last_step(task, place, row));
                    row.store(s.queries, row.load(task.q, place));
                    const MlpPlace next = mlp_place(sizes, piece, pair, number + 1);
                    row.prefetch(task.k, next);
                    row.prefetch(task.v, next);
                    row.prefetch(task.q, next);
                }
                __syncthreads();

                // Z1 and Q W1 in one pass; X2, φ'(Z1), this warp's part of Z2. One warp makes P1 for all.
                Sums<2> slope[mlp_hidden_tiles] = {bias_sums(s.bias1, 0), bias_sums(s.bias1, 1)};
                Tile hidden[mlp_hidden_tiles];
                {
                    Sums<2> read[mlp_hidden_tiles] = {slope[0], slope[1]};
#pragma unroll Geometry::unrolled
                    for (int c = 0; c < Geometry::tiles; ++c) {
                        const Tile key = load_tile(s.keys + 16 * c, Geometry::bf16_stride);
                        const Tile query = load_tile(s.queries + 16 * c, Geometry::bf16_stride);
#pragma unroll
                        for (int h = 0; h < mlp_hidden_tiles; ++h) {
                            const Tile weight = weight1.tile(h, c);
                            multiply(slope[h], key, weight);
                            multiply(read[h], query, weight);
                        }
                    }
                    read1.set(0, read[0]);
                    read1.set(1, read[1]);
                }
                if (thread / warp_width == Geometry::warps - 1) {
                    const Sums<2> allowed = allowed_steps(steps);
                    factor1[lane_index()] = packed(negative_product(allowed, first_scores(s)));
                    store_lane_sums(s.allowed, allowed);
                }
                apply_gelu(hidden, slope);
                const auto second = [&](int h, int c) { return weight2.tile(h, c); };
                multiply_hidden<F>(s.partial, hidden, second);
                __syncthreads();

                if (row.here()) loss_rows(s, row, steps, bias2);
                __syncthreads();

                // G1, Z̄1, X̄2, P2's part, and this warp's part of Z̄2 - c2; the state's update.
                Sums<2> gradient1[mlp_hidden_tiles];
                Tile gradient1_transposed[mlp_hidden_tiles], read_hidden[mlp_hidden_tiles];
                gradient1[0].clear();
                gradient1[1].clear();
                multiply_rows<F>(gradient1, s.gradient2_rows, second);
                const Tile factor = factor1[lane_index()];
#pragma unroll
                for (int h = 0; h < mlp_hidden_tiles; ++h) {
                    for_sums([&](int n, int i) { gradient1[h].at[n][i] *= slope[h].at[n][i]; });
                    gradient1_transposed[h] = transposed(packed(gradient1[h]));
                    Sums<2> z = read1.get(h);
                    multiply(z, factor, gradient1_transposed[h]);
                    for_sums([&](int n, int i) { z.at[n][i] = gelu_curve(z.at[n][i]).value; });
                    read_hidden[h] = packed(z);
                }
                update_bias1(s, gradient1, steps);
                const Tile factor2 = packed(negative_product(load_sums(s.allowed), second_scores(read_hidden, hidden)));
                multiply_hidden<F>(s.partial, read_hidden, second, factor2, s.gradient2_rows);
                if (number + 1 < piece.count || task.final_state.weight1)
                    update_weights<F>(s, s.stepped_keys, weight1, weight2, gradient1_transposed, hidden);
                __syncthreads();

                // The last rows; the next mini-batch writes nothing of what they read before its first barrier.
                if (row.here()) {
                    RowValues<F> z = row.partial_sum(s.partial), y = row.load(task.q, place);
                    const RowValues<F> bias = row.load_row(bias2);
#pragma unroll
                    for (int i = 0; i < RowValues<F>::count; ++i) z.at[i] += bias.at[i];
                    normalise_row(row, z);
                    const RowValues<F> norm_weight = row.load_row(s.norm_weight), norm_bias = row.load_row(s.norm_bias);
#pragma unroll
                    for (int i = 0; i < RowValues<F>::count; ++i)
                        y.at[i] += fmaf(norm_weight.at[i], z.at[i], norm_bias.at[i]);
                    row.store(task.y, place, y);
                }
                update_bias2<F>(next_bias2, bias2, s.gradient2, steps);
            }
            begin += piece.length;
        } while (Pieces && begin < task.pieces.length);
        if (task.final_state.weight1) {
            const std::int64_t place = static_cast<std::int64_t>(pair) * f * sizes.hidden;
            if (Geometry::on_chip) {
                weight1.store_all(work);
                weight2.store_all(work + Geometry::weight_floats);
            }
            copy_state<F>(task.final_state.weight1 + place, task.final_state.weight2 + place, work, sizes);
            if (thread < sizes.hidden) task.final_state.bias1[pair * sizes.hidden + thread] = s.bias1[thread];
            if (thread < f) task.final_state.bias2[pair * f + thread] = s.bias2[turn * F + thread];
        }
    }
}

template <int F>
void ttt_mlp_forward_tiles(const TttArguments& arguments, Type type) {
    using Geometry = MlpGeometry<F>;
    const std::int64_t blocks = ttt_mlp_blocks(arguments);
    const auto run = [&](auto element) {
        using T = decltype(element);
        TttMlpTask<T> task = ttt_mlp_task<T>(arguments);
        task.work_count = (Geometry::on_chip ? 2 : 3) * Geometry::weight_floats;
        task.work =
            static_cast<float*>(arguments.scratch(static_cast<std::size_t>(blocks * task.work_count) * sizeof(float)));
        launch({"ttt_mlp_forward", dim3(static_cast<unsigned>(blocks)), Geometry::threads,
                (MlpShared<F>::floats + forward_factor_floats + Waiting<F>::floats) * sizeof(float), arguments.stream},
               !task.pieces.joined() ? ttt_mlp_forward_tiles<T, F, true> : ttt_mlp_forward_tiles<T, F, false>, task);
    };
    if (type == Type::bf16)
        run(bf16{});
    else
        run(fp16{});
}

}  // namespace

void ttt_mlp_forward(const TttArguments& arguments, Type type) {
    switch (ttt_mlp_tile_width(arguments, type)) {
        case 64:
            return ttt_mlp_forward_tiles<64>(arguments, type);
        case 96:
            return ttt_mlp_forward_tiles<96>(arguments, type);
        default:
            return ttt_mlp_forward_general(arguments, type);
    }
}

}  // namespace lockstep::kernels::cuda
