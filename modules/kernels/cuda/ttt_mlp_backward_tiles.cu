// TTT-MLP backward on tensor cores. A block processes its mini-batches in groups, last group first: it recomputes the
// group's states from the saved one, then goes back through them. The fp32 gradient of the state stays in registers
// meanwhile if F = 64.
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_backward_tiles.hpp"

namespace lockstep::kernels::cuda {
namespace {

// One mini-batch backward: dstate is the gradient of the state after it, and becomes that of the state before it.
template <class T, int F, class Weights>
__device__ __forceinline__ void go_back(const TttMlpTask<T>& task, const MlpShared<F>& s, const MlpBackwardShared<F>& d,
                                        const MlpSlot<F>& slot, Weights& dweight1, Weights& dweight2,
                                        MlpThreadSums& sums_of_thread, const MlpPlace& place) {
    using Geometry = MlpGeometry<F>;
    constexpr int stride = Geometry::bf16_stride;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x), warp = thread / warp_width;
    const MlpSteps& steps = s.steps[0];
    const float* const bias2 = s.bias2;
    const auto first = [&](int h, int c) { return slot.weight1[Weights::tile_place(h, c)]; };
    const auto second = [&](int h, int c) { return slot.weight2[Weights::tile_place(h, c)]; };
    const auto dfirst = [&](int h, int c) { return dweight1.tile(h, c); };
    const auto dsecond = [&](int h, int c) { return dweight2.tile(h, c); };
    Waiting<F> input(d.waiting[0]), pulled(d.waiting[1]), read1(d.waiting[2]);  // Z1; J, later dZ1; Z̄1, later dX2

    // This warp's rows; LNL2 from the saved Z2.
    load_steps(s.steps[0], task, place);
    load_keys<T, F>(s, task, place);
    load_queries<T, F>(s, task, place);
    for_warp_rows<F>([&](int row, int lane) {
        for_row<F>(task.dy, place, sizes, row, lane, [&](int column, float first_value, float second_value) {
            d.dout[row * F + column] = first_value;
            d.dout[row * F + column + 1] = second_value;
        });
        float *const normalised = s.normalised + row * F, *const gradient = s.gradient2 + row * F;
        for (int j = lane; j < F; j += warp_width) normalised[j] = slot.output[row * F + j];
        __syncwarp(all_lanes);
        const float inverse = normalise_row(normalised, f, lane);
        const float projection =
            loss_row(normalised, inverse, s.difference + row * F, gradient, s.norm_weight, s.norm_bias, f, lane);
        if (lane == 0) {
            d.inverse[row] = inverse;
            d.projection[row] = projection;
        }
        for (int j = lane; j < F; j += warp_width) {
            if (j >= f) gradient[j] = 0;
            s.gradient2_rows[row * stride + j] = from_float<bf16>(gradient[j]);
        }
    });
    s.bias1[thread] = slot.bias1[thread];
    if (thread < F) s.bias2[thread] = slot.bias2[thread];
    __syncthreads();

    // Z1, X2, J, G1; Z̄1, X̄2; parts of S2 and Z̄2.
    Tile hidden[mlp_hidden_tiles], gradient1[mlp_hidden_tiles], read_hidden[mlp_hidden_tiles];
    Tile factor1;  // -P1
    {
        Sums<2> z[mlp_hidden_tiles], read[mlp_hidden_tiles];
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h)
            for_sums([&](int n, int i) { z[h].at[n][i] = read[h].at[n][i] = s.bias1[hidden_column(h, n, i)]; });
#pragma unroll
        for (int c = 0; c < Geometry::tiles; ++c) {
            const Tile key = load_tile(s.keys + 16 * c, stride), query = load_tile(s.queries + 16 * c, stride);
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                const Tile weight = first(h, c);
                multiply(z[h], key, weight);
                multiply(read[h], query, weight);
            }
        }
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            input.set(h, z[h]);
            read1.set(h, read[h]);
        }
        factor1 = negative_factor1<F>(s, steps, [&](int row, int column, float value) {
            if (warp == 0) d.score1[row * mlp_rows + column] = value;
        });
        Sums<2> j[mlp_hidden_tiles];
        j[0].clear();
        j[1].clear();
        multiply_rows<F>(j, s.gradient2_rows, second);
        Sums<2> scores;
        scores.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            pulled.set(h, j[h]);
            Sums<2> value = input.get(h);
            for_sums([&](int n, int i) {
                const Gelu gelu = gelu_at(value.at[n][i]);
                value.at[n][i] = gelu.value;
                j[h].at[n][i] *= gelu.slope;
            });
            hidden[h] = packed(value);
            gradient1[h] = packed(j[h]);
            value = read1.get(h);
            multiply(value, factor1, transposed(gradient1[h]));
            read1.set(h, value);
            for_sums([&](int n, int i) { value.at[n][i] = gelu_at(value.at[n][i]).value; });
            read_hidden[h] = packed(value);
            multiply(scores, read_hidden[h], hidden[h]);
        }
        store_scores<F>(s.scores, scores);
        multiply_hidden<F>(s.partial, read_hidden, second);
    }
    __syncthreads();

    // Rows: backward through the output's norm.
    for_warp_rows<F>([&](int row, int lane) {
        float *const z = d.read2 + row * F, *const dz = d.dread2 + row * F;
        float score, factor;
        read2_row<F>(z, s, steps, bias2, row, lane, score, factor);
        if (lane < mlp_rows) {
            d.score2[row * mlp_rows + lane] = score;
            d.factor2[row * mlp_rows + lane] = factor;
        }
        const float inverse = normalise_row(z, f, lane);
        norm_backward_row(dz, d.dout + row * F, z, inverse, s.norm_weight, f, lane);
        for (int j = lane; j < F; j += warp_width) {
            if (j >= f) dz[j] = 0;
            d.dread2_rows[row * stride + j] = from_float<bf16>(dz[j]);
        }
    });
    __syncthreads();

    // dX̄2, dZ̄1; parts of dP1 and of dZ̄1 W1ᵀ.
    Tile dread1[mlp_hidden_tiles];
    {
        if (thread < f)
            for (int row = 0; row < mlp_rows; ++row) {
                sums_of_thread.norm_weight += d.dout[row * F + thread] * d.read2[row * F + thread];
                sums_of_thread.norm_bias += d.dout[row * F + thread];
            }
        Sums<2> dfactor2;
        dfactor2.clear();
#pragma unroll
        for (int c = 0; c < Geometry::tiles; ++c)
            multiply(dfactor2, load_tile(d.dread2_rows + 16 * c, stride), load_tile(s.gradient2_rows + 16 * c, stride));
        for_sums([&](int n, int i) {
            const int row = Sums<2>::row(i), column = Sums<2>::column(n, i), at = row * mlp_rows + column;
            const float value = column <= row ? -dfactor2.at[n][i] : 0.0f;
            if (warp == 0) d.dscale[at] = value * d.score2[at];
            dfactor2.at[n][i] = value * steps.scale[row] * steps.step[column];
        });
        const Tile dscore2 = packed(dfactor2), dscore2_transposed = transposed(dscore2);
        Sums<2> dread_hidden[mlp_hidden_tiles], dfactor1;
        dfactor1.clear();
        dread_hidden[0].clear();
        dread_hidden[1].clear();
        multiply_rows<F>(dread_hidden, d.dread2_rows, second);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            multiply(dread_hidden[h], dscore2, transposed(hidden[h]));
            const Sums<2> read = read1.get(h);
            for_sums([&](int n, int i) { dread_hidden[h].at[n][i] *= gelu_at(read.at[n][i]).slope; });
            dread1[h] = packed(dread_hidden[h]);
            set_bias(d.dbias1_change, h, column_sums(dread_hidden[h]));
            multiply(dfactor1, dread1[h], gradient1[h]);
            Sums<2> dhidden;
            dhidden.clear();
            multiply(dhidden, dscore2_transposed, transposed(read_hidden[h]));
            read1.set(h, dhidden);
        }
        store_scores<F>(s.scores, dfactor1);
        multiply_hidden<F>(s.partial, dread1, first);
    }
    __syncthreads();

    // Rows of dQ; dS1 and dE.
    for_warp_rows<F>([&](int row, int lane) {
        float dscore = 0;
        if (lane < mlp_rows) {
            const int at = row * mlp_rows + lane;
            const float value = lane <= row ? -score_sum<F>(s.scores, row, lane) : 0.0f;
            d.dscale[at] += value * d.score1[at];
            dscore = value * steps.scale[row] * steps.step[lane];
            d.dscore1[at] = dscore;
        }
        float sums[F / warp_width];
#pragma unroll
        for (int u = 0; u < F / warp_width; ++u) {
            const int j = lane + u * warp_width;
            sums[u] = d.dout[row * F + j] + partial_sum<F>(s.partial, row, j);
        }
#pragma unroll
        for (int i = 0; i < mlp_rows; ++i) {
            const float value = __shfl_sync(all_lanes, dscore, i);
#pragma unroll
            for (int u = 0; u < F / warp_width; ++u)
                sums[u] = fmaf(value, to_float(s.keys[i * stride + lane + u * warp_width]), sums[u]);
        }
#pragma unroll
        for (int u = 0; u < F / warp_width; ++u) {
            const int j = lane + u * warp_width;
            if (row < place.tokens && j < f) task.dq[place.row + row * sizes.row_stride() + j] = from_float<T>(sums[u]);
        }
    });

    // Contributions of dW2' and dW1'; dG1, dJ, and the first part of dZ1.
    Tile dpulled[mlp_hidden_tiles], stepped_hidden[mlp_hidden_tiles], stepped1[mlp_hidden_tiles];  // dJ, -e X2, -e G1
    {
        const float last[2] = {steps.last[Sums<2>::row(0)], steps.last[Sums<2>::row(2)]};
        float dlast[2] = {};
        Sums<2> terms[mlp_hidden_tiles];
        terms[0].clear();
        terms[1].clear();
        multiply_rows<F>(terms, s.gradient2_rows, dsecond);  // R2
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> z = input.get(h);
            Sums<2> value, dhidden = read1.get(h);
            for_sums([&](int n, int i) {
                value.at[n][i] = gelu_at(z.at[n][i]).value;
                dlast[i / 2] -= value.at[n][i] * terms[h].at[n][i];
                value.at[n][i] *= -last[i / 2];
                dhidden.at[n][i] -= last[i / 2] * terms[h].at[n][i];
            });
            stepped_hidden[h] = packed(value);
            read1.set(h, dhidden);
            for_sums([&](int n, int i) { terms[h].at[n][i] = d.dbias1[hidden_column(h, n, i)]; });
        }
        multiply_rows<F>(terms, s.keys, dfirst);  // K dW1' + dc1'
        const Tile left = transposed(factor1);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> z = input.get(h), j = pulled.get(h);
            Sums<2> dgradient, dinput, value;
            for_sums([&](int n, int i) {
                value.at[n][i] = j.at[n][i] * gelu_at(z.at[n][i]).slope;
                dlast[i / 2] -= value.at[n][i] * terms[h].at[n][i];
                value.at[n][i] *= -last[i / 2];
                dgradient.at[n][i] = -last[i / 2] * terms[h].at[n][i];
            });
            stepped1[h] = packed(value);
            multiply(dgradient, left, transposed(dread1[h]));
            for_sums([&](int n, int i) {
                const Gelu gelu = gelu_at(z.at[n][i]);
                dinput.at[n][i] = dgradient.at[n][i] * j.at[n][i] * gelu.curvature;
                dgradient.at[n][i] *= gelu.slope;
            });
            dpulled[h] = packed(dgradient);
            pulled.set(h, dinput);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            dlast[r] += __shfl_xor_sync(all_lanes, dlast[r], 1);
            dlast[r] += __shfl_xor_sync(all_lanes, dlast[r], 2);
            if (lane_index() % 4 == 0) d.dlast_parts[warp * mlp_rows + lane_index() / 4 + 8 * r] = dlast[r];
        }
    }
    __syncthreads();

    // This warp's part of dJ W2 - (e X2) dW2'.
#pragma unroll
    for (int c = 0; c < Geometry::tiles; ++c) {
        Sums<2> sums;
        sums.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            multiply(sums, dpulled[h], transposed(second(h, c)));
            multiply(sums, stepped_hidden[h], transposed(dsecond(h, c)));
        }
        store_partial<F>(s.partial, c, sums);
    }
    __syncthreads();

    // Rows: dG2, backward through the loss, dV.
    for_warp_rows<F>([&](int row, int lane) {
        float *const dgradient = d.dgradient2 + row * F, *const ddifference = d.ddifference + row * F;
        float sums[F / warp_width], along = 0;
#pragma unroll
        for (int u = 0; u < F / warp_width; ++u) {
            const int j = lane + u * warp_width;
            sums[u] = partial_sum<F>(s.partial, row, j) - steps.last[row] * d.dbias2[j];
            along += s.gradient2[row * F + j] * d.dbias2[j];
        }
        for (int i = row; i < mlp_rows; ++i) {
            const float factor = d.factor2[i * mlp_rows + row];
#pragma unroll
            for (int u = 0; u < F / warp_width; ++u) sums[u] -= factor * d.dread2[i * F + lane + u * warp_width];
        }
#pragma unroll
        for (int u = 0; u < F / warp_width; ++u) dgradient[lane + u * warp_width] = sums[u];
        along = warp_sum(along);
        if (lane == 0) {
            float sum = -along;
            for (int w = 0; w < Geometry::warps; ++w) sum += d.dlast_parts[w * mlp_rows + row];
            d.dlast[row] = sum;
        }
        loss_backward_row(dgradient, ddifference, s.normalised + row * F, s.difference + row * F, s.gradient2 + row * F,
                          d.inverse[row], d.projection[row], s.norm_weight, f, lane);
        for (int j = lane; j < F; j += warp_width) {
            if (j >= f) dgradient[j] = 0;
            d.dloss_rows[row * stride + j] = from_float<bf16>(dgradient[j]);
            if (row < place.tokens && j < f)
                task.dv[place.row + row * sizes.row_stride() + j] = from_float<T>(-ddifference[j]);
        }
    });
    __syncthreads();

    // dX2, dZ1; this warp's part of dZ1 W1ᵀ - (e G1) dW1'ᵀ; the gradient of the previous state.
    {
        Tile dinput[mlp_hidden_tiles];
        Sums<2> dhidden[mlp_hidden_tiles] = {read1.get(0), read1.get(1)};
        multiply_rows<F>(dhidden, d.dloss_rows, second);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> z = input.get(h), before = pulled.get(h);
            Sums<2> value;
            for_sums([&](int n, int i) {
                const Gelu gelu = gelu_at(z.at[n][i]);
                value.at[n][i] = gelu.value;
                dhidden[h].at[n][i] = before.at[n][i] + dhidden[h].at[n][i] * gelu.slope;
            });
            hidden[h] = packed(value);  // recomputed, rather than held in registers all along
            dinput[h] = packed(dhidden[h]);
            add_to_bias(d.dbias1_change, h, column_sums(dhidden[h]));
        }
#pragma unroll
        for (int c = 0; c < Geometry::tiles; ++c) {
            Sums<2> sums;
            sums.clear();
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                multiply(sums, dinput[h], transposed(first(h, c)));
                multiply(sums, stepped1[h], transposed(dfirst(h, c)));
            }
            store_partial<F>(s.partial, c, sums);
        }
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Tile left_input = transposed(dinput[h]), left_read = transposed(dread1[h]);
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) {
                Sums<2> sums = dweight1.get(h, c);
                multiply(sums, left_read, load_tile_transposed(s.queries + 16 * c, stride));
                multiply(sums, left_input, load_tile_transposed(s.keys + 16 * c, stride));
                dweight1.set(h, c, sums);
            }
        }
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Tile left_hidden = transposed(hidden[h]), left_read = transposed(read_hidden[h]),
                       left_pulled = transposed(dpulled[h]);
#pragma unroll
            for (int c = 0; c < Geometry::tiles; ++c) {
                Sums<2> sums = dweight2.get(h, c);
                multiply(sums, left_read, load_tile_transposed(d.dread2_rows + 16 * c, stride));
                multiply(sums, left_pulled, load_tile_transposed(s.gradient2_rows + 16 * c, stride));
                multiply(sums, left_hidden, load_tile_transposed(d.dloss_rows + 16 * c, stride));
                dweight2.set(h, c, sums);
            }
        }
        if (thread < f) {
            float change = 0;
            for (int row = 0; row < mlp_rows; ++row) {
                const int at = row * F + thread;
                change += d.dread2[at] + d.dgradient2[at];
                sums_of_thread.norm_weight += s.normalised[at];
                sums_of_thread.norm_bias += d.ddifference[at];
            }
            d.dbias2[thread] += change;
        }
        __syncwarp(all_lanes);
        d.dbias1[thread] += d.dbias1_change[thread];  // of this warp: 32 hidden features
        if (thread < place.tokens) {                  // dE and de to dλ and dτ
            float dstep = steps.scale[place.tokens - 1] * d.dlast[thread];
            for (int i = 0; i < place.tokens; ++i) {
                dstep += steps.scale[i] * d.dscale[i * mlp_rows + thread];
                sums_of_thread.token_scale += steps.step[i] * (d.dscale[thread * mlp_rows + i] +
                                                               (thread == place.tokens - 1 ? d.dlast[i] : 0.0f));
            }
            task.dstep_size[place.step + static_cast<std::int64_t>(thread) * sizes.heads] = dstep;
        }
    }
    __syncthreads();

    // Rows of dK.
    for_warp_rows<F>([&](int row, int lane) {
        if (row >= place.tokens) return;
        for (int j = lane; j < f; j += warp_width) {
            float sum = partial_sum<F>(s.partial, row, j) + d.ddifference[row * F + j];  // the target is V - K
            for (int i = row; i < mlp_rows; ++i)
                sum = fmaf(d.dscore1[i * mlp_rows + row], to_float(s.queries[i * stride + j]), sum);
            task.dk[place.row + row * sizes.row_stride() + j] = from_float<T>(sum);
        }
    });
    __syncthreads();
}

template <class T, int F>
__global__ void __launch_bounds__(MlpGeometry<F>::threads, 1) backward(TttMlpTask<T> task) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    MlpShared<F> s;
    MlpBackwardShared<F> d;
    float* const behind = s.place(shared_memory<float>());
    d.place(behind, s.stepped_rows);
    const MlpBackwardWork<F> work(task.work + blockIdx.x * task.work_count);

    for (std::int64_t pair = blockIdx.x; pair < sizes.pairs(); pair += gridDim.x) {
        const std::int64_t head = pair % sizes.heads;
        MlpThreadSums sums_of_thread{};
        if (thread < F) {
            s.norm_weight[thread] = thread < f ? task.norm_weight[head * f + thread] : 0.0f;
            s.norm_bias[thread] = thread < f ? task.norm_bias[head * f + thread] : 0.0f;
            d.dbias2[thread] = thread < f && task.dfinal.bias2 ? task.dfinal.bias2[pair * f + thread] : 0.0f;
        }
        d.dbias1[thread] =
            thread < sizes.hidden && task.dfinal.bias1 ? task.dfinal.bias1[pair * sizes.hidden + thread] : 0.0f;
        const std::int64_t groups = sizes.kept_states() + 1;
        for (std::int64_t group = groups - 1; group >= 0; --group) {
            const std::int64_t begin = group * sizes.group;
            const std::int64_t end =
                begin + sizes.group < sizes.mini_batches() ? begin + sizes.group : sizes.mini_batches();
            remake_states<T, F>(task, s, work, pair, begin, end);
            Weights dweight1(work.dstate, work.dtiles);
            Weights dweight2(work.dstate + Geometry::weight_floats, work.dtiles + Geometry::weight_tiles * warp_width);
            if (group == groups - 1 && task.dfinal.weight1) {
                const std::int64_t matrix = pair * f * sizes.hidden;
                dweight1.load_model(task.dfinal.weight1 + matrix, 1, sizes.hidden, sizes);
                dweight2.load_model(task.dfinal.weight2 + matrix, f, 1, sizes);
            } else if (group == groups - 1) {
                dweight1.clear_all();
                dweight2.clear_all();
            } else if (Geometry::on_chip) {
                dweight1.load_all(work.dstate);
                dweight2.load_all(work.dstate + Geometry::weight_floats);
            }
            for (std::int64_t number = end - 1; number >= begin; --number) {
                const MlpSlot<F> slot(work.slots + (number - begin) * MlpSlot<F>::floats);
                go_back<T, F>(task, s, d, slot, dweight1, dweight2, sums_of_thread, mlp_place(sizes, pair, number));
            }
            if (group > 0) {
                if (Geometry::on_chip) {
                    dweight1.store_all(work.dstate);
                    dweight2.store_all(work.dstate + Geometry::weight_floats);
                }
                continue;
            }
            float* part = task.parts + pair * sizes.part_count;
            dweight1.store_model(part, 1, sizes.hidden, sizes);
            part += f * sizes.hidden;
            if (thread < sizes.hidden) part[thread] = d.dbias1[thread];
            dweight2.store_model(part += sizes.hidden, f, 1, sizes);
            part += f * sizes.hidden;
            if (thread < f) {
                part[thread] = d.dbias2[thread];
                part[f + thread] = sums_of_thread.norm_weight;
                part[2 * f + thread] = sums_of_thread.norm_bias;
            }
            if (thread < sizes.mini_batch) part[3 * f + thread] = sums_of_thread.token_scale;
        }
    }
}

template <int F>
std::int64_t work_floats(const TttMlpSizes& sizes) {
    return MlpBackwardWork<F>::fixed_floats + static_cast<std::int64_t>(sizes.group) * MlpSlot<F>::floats;
}

template <class T, int F>
void run(const TttArguments& arguments, float* parts, float* work) {
    TttMlpTask<T> task = ttt_mlp_task<T>(arguments);
    task.parts = parts;
    task.work = work;
    task.work_count = work_floats<F>(task.sizes);
    constexpr std::size_t shared_bytes = (MlpShared<F>::floats + MlpBackwardShared<F>::floats) * sizeof(float);
    static_assert(shared_bytes <= 163 * 1024, "a block of an A100 has no more");
    launch({"ttt_mlp_backward", dim3(static_cast<unsigned>(ttt_mlp_blocks(arguments))), MlpGeometry<F>::threads,
            shared_bytes, arguments.stream},
           backward<T, F>, task);
}

}  // namespace

std::int64_t ttt_mlp_backward_tiles_work(const TttMlpSizes& sizes, int tile_width) {
    return tile_width == 64 ? work_floats<64>(sizes) : work_floats<96>(sizes);
}

void ttt_mlp_backward_tiles(const TttArguments& arguments, Type type, float* parts, float* work) {
    const bool narrow = ttt_mlp_tile_width(ttt_mlp_sizes(arguments.shape), type) == 64;
    if (type == Type::bf16)
        return narrow ? run<bf16, 64>(arguments, parts, work) : run<bf16, 96>(arguments, parts, work);
    return narrow ? run<fp16, 64>(arguments, parts, work) : run<fp16, 96>(arguments, parts, work);
}

}  // namespace lockstep::kernels::cuda
