// TTT-MLP forward.
#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_block.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T, int F>
__global__ void __launch_bounds__(MlpGeometry<F>::threads, 1) ttt_mlp_forward_tiles(TttMlpTask<T> task) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    MlpShared<F> s;
    Waiting<F> read1(s.place(shared_memory<float>()));  // Q W1 + c1
    float* const work = task.work + blockIdx.x * task.work_count;
    auto* const tiles = reinterpret_cast<Tile*>(work + 2 * Geometry::weight_floats);
    Weights weight1(work, tiles);
    Weights weight2(work + Geometry::weight_floats, tiles + Geometry::weight_tiles * warp_width);

    for (std::int64_t pair = blockIdx.x; pair < sizes.pairs(); pair += gridDim.x) {
        const std::int64_t head = pair % sizes.heads, start = pair % task.start_models,
                           matrix = start * f * sizes.hidden;
        __syncthreads();  // the pair before is done with shared memory
        weight1.load_model(task.start.weight1 + matrix, 1, sizes.hidden, sizes);
        weight2.load_model(task.start.weight2 + matrix, f, 1, sizes);
        s.bias1[thread] = thread < sizes.hidden ? task.start.bias1[start * sizes.hidden + thread] : 0.0f;
        if (thread < F) {
            s.norm_weight[thread] = thread < f ? task.norm_weight[head * f + thread] : 0.0f;
            s.norm_bias[thread] = thread < f ? task.norm_bias[head * f + thread] : 0.0f;
            s.bias2[thread] = thread < f ? task.start.bias2[start * f + thread] : 0.0f;
        }
        int turn = 0;
        for (std::int64_t number = 0; number < sizes.mini_batches(); ++number, turn ^= 1) {
            const MlpPlace place = mlp_place(sizes, pair, number);
            MlpSteps& steps = s.steps[turn];
            float *const bias2 = s.bias2 + turn * F, *const next_bias2 = s.bias2 + (turn ^ 1) * F;
            if (task.saved && number > 0 && number % sizes.group == 0) {
                float* const kept =
                    task.saved + (pair * sizes.kept_states() + number / sizes.group - 1) * sizes.kept_count();
                weight1.store_all(kept);
                weight2.store_all(kept + Geometry::weight_floats);
                kept[2 * Geometry::weight_floats + thread] = s.bias1[thread];
                if (thread < F) kept[2 * Geometry::weight_floats + 4 * F + thread] = bias2[thread];
            }
            load_steps(steps, task, place);
            load_keys<T, F>(s, task, place);
            load_queries<T, F>(s, task, place);
            __syncthreads();

            // Z1 and Q W1 in one pass; X2, φ'(Z1), this warp's part of Z2.
            Sums<2> slope[mlp_hidden_tiles], read[mlp_hidden_tiles];
            Tile hidden[mlp_hidden_tiles];
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                for_sums([&](int n, int i) { slope[h].at[n][i] = read[h].at[n][i] = s.bias1[hidden_column(h, n, i)]; });
            }
#pragma unroll
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
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                read1.set(h, read[h]);
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
                    s.normalised[row * F + j] = partial_sum<F>(s.partial, row, j) + bias2[j];
            });
            loss_rows<F>(s, steps, f);
            __syncthreads();

            // G1, Z̄1, X̄2, and this warp's part of S2 and Z̄2.
            Sums<2> gradient1[mlp_hidden_tiles];
            Tile stepped1[mlp_hidden_tiles], read_hidden[mlp_hidden_tiles];
            gradient1[0].clear();
            gradient1[1].clear();
            multiply_rows<F>(gradient1, s.gradient2_rows, second);
            const Tile factor1 = negative_factor1<F>(s, steps, [](int, int, float) {});
            Sums<2> scores;
            scores.clear();
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                for_sums([&](int n, int i) { gradient1[h].at[n][i] *= slope[h].at[n][i]; });
                Sums<2> z = read1.get(h);
                multiply(z, factor1, transposed(packed(gradient1[h])));
                for_sums([&](int n, int i) {
                    z.at[n][i] = gelu_at(z.at[n][i]).value;
                    gradient1[h].at[n][i] *= -steps.last[Sums<2>::row(i)];
                });
                read_hidden[h] = packed(z);
                stepped1[h] = packed(gradient1[h]);
                add_to_bias(s.bias1, h, column_sums(gradient1[h]));
                multiply(scores, read_hidden[h], hidden[h]);
            }
            store_scores<F>(s.scores, scores);
            multiply_hidden<F>(s.partial, read_hidden, second);
            if (number + 1 < sizes.mini_batches() || task.final_state.weight1)
                update_weights<F>(s, weight1, weight2, stepped1, hidden);
            __syncthreads();

            // The last rows; the next mini-batch writes nothing of what they read before its first barrier.
            for_warp_rows<F>([&](int row, int lane) {
                float* const z = s.normalised + row * F;
                float score, factor;
                read2_row<F>(z, s, steps, bias2, row, lane, score, factor);
                normalise_row(z, f, lane);
                if (row < place.tokens)
                    for (int j = lane; j < f; j += warp_width) {
                        const std::int64_t at = place.row + row * sizes.row_stride() + j;
                        task.y[at] = from_float<T>(to_float(task.q[at]) + (s.norm_weight[j] * z[j] + s.norm_bias[j]));
                    }
            });
            update_bias2<F>(next_bias2, bias2, s.gradient2, steps);
        }
        if (task.final_state.weight1) {
            const std::int64_t place = pair * f * sizes.hidden;
            weight1.store_model(task.final_state.weight1 + place, 1, sizes.hidden, sizes);
            weight2.store_model(task.final_state.weight2 + place, f, 1, sizes);
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
        if (!Geometry::on_chip) {
            task.work_count = 3 * Geometry::weight_floats;
            task.work = static_cast<float*>(
                arguments.scratch(static_cast<std::size_t>(blocks * task.work_count) * sizeof(float)));
        }
        launch({"ttt_mlp_forward", dim3(static_cast<unsigned>(blocks)), Geometry::threads,
                (MlpShared<F>::floats + Waiting<F>::floats) * sizeof(float), arguments.stream},
               ttt_mlp_forward_tiles<T, F>, task);
    };
    if (type == Type::bf16)
        run(bf16{});
    else
        run(fp16{});
}

}  // namespace

void ttt_mlp_forward(const TttArguments& arguments, Type type) {
    switch (ttt_mlp_tile_width(ttt_mlp_sizes(arguments.shape), type)) {
        case 64:
            return ttt_mlp_forward_tiles<64>(arguments, type);
        case 96:
            return ttt_mlp_forward_tiles<96>(arguments, type);
        default:
            return ttt_mlp_forward_general(arguments, type);
    }
}

}  // namespace lockstep::kernels::cuda
