// TTT-MLP's way back through one mini-batch, on tensor cores, by the warps of a block.
#pragma once

#include "kernels/cuda/ttt_mlp_backward_tiles.hpp"

namespace lockstep::kernels::cuda {

// Σ over this lane's rows and columns of dE, weighted with the steps: this warp's parts of dλ and dτ but for de.
template <int F>
__device__ inline void step_parts(const MlpBackwardShared<F>& d, const MlpSteps& steps, const Sums<2>& dallowed) {
    const int lane = lane_index(), part = static_cast<int>(threadIdx.x) / warp_width * mlp_rows;
    float by_row[2], by_column[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        by_row[r] = 0;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                by_row[r] = fmaf(steps.step[Sums<2>::column(n, i)], dallowed.at[n][2 * r + i], by_row[r]);
        by_row[r] = lanes_sum<4>(by_row[r]);
        if (lane % 4 == 0) d.dscale_parts[part + lane / 4 + 8 * r] = by_row[r];
    }
    const float upper = steps.scale[lane / 4], lower = steps.scale[lane / 4 + 8];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
            by_column[2 * n + i] = fmaf(lower, dallowed.at[n][i + 2], upper * dallowed.at[n][i]);
    const float sum = spread_sum(by_column);  // of n = lane / 16, i = lane / 8 % 2
    if (lane / 4 % 2 == 0) d.dstep_parts[part + 8 * (lane / 16) + 2 * (lane % 4) + lane / 8 % 2] = sum;
    __syncwarp(all_lanes);  // tensor cores need a converged warp
}
// -M ⊙ (left · rightᵀ), and times E: dP and dS of one layer; dE += dP ⊙ S.
__device__ inline Sums<2> score_gradient(Sums<2>& dallowed, const Sums<2>& product, const Sums<2>& score,
                                         const Sums<2>& allowed) {
    Sums<2> dscore;
    for_sums([&](int n, int i) {
        const bool within = !(n == 1 && i < 2) && Sums<2>::column(n, i) <= Sums<2>::row(i);
        const float dfactor = within ? -product.at[n][i] : 0.0f;
        dallowed.at[n][i] = fmaf(dfactor, score.at[n][i], dallowed.at[n][i]);
        dscore.at[n][i] = dfactor * allowed.at[n][i];
    });
    return dscore;
}

// One mini-batch backward: dstate is the gradient of the state after it, and becomes that of the state before it.
// `next` is the slot of the mini-batch before, the next to go back through, or null.
template <class T, int F, class Weights>
__device__ __forceinline__ void go_back(const TttMlpTask<T>& task, const MlpShared<F>& s, const MlpBackwardShared<F>& d,
                                        const MlpRow<F>& row, const MlpSlot<F>& slot, float* next, Weights& dweight1,
                                        Weights& dweight2, const MlpPlace& place) {
    using Geometry = MlpGeometry<F>;
    using Values = RowValues<F>;
    constexpr int stride = Geometry::bf16_stride, count = Values::count;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width;
    const MlpSteps& steps = s.steps[0];
    const MlpSlotWeights<F> weights(d.weights);
    const auto first = [&](int h, int c) { return paired(weights.first(slot)[Weights::tile_place(h, c)]); };
    const auto second = [&](int h, int c) { return paired(weights.second(slot)[Weights::tile_place(h, c)]); };
    const auto dfirst = [&](int h, int c) { return dweight1.tile(h, c); };
    const auto dsecond = [&](int h, int c) { return dweight2.tile(h, c); };
    Waiting<F> slope(d.waiting[0]);    // φ'(Z1)
    Waiting<F> bend(d.waiting[1]);     // J⊙φ''(Z1), later dZ1 but for dX2's part
    Waiting<F> dhidden(d.waiting[2]);  // φ'(Z̄1), later dX2
    WaitingTiles<F, 2> read_hidden_tiles(d.read_hidden);
    WaitingTiles<F, 3> factors(d.factors);  // this warp's part of -P2, what its rounding loses, dS1

    // This warp's rows; LNL2 from the saved Z2.
    load_steps(s.steps[0], task, place);
    if (row.here()) {
        load_keys(s, task, place, row);
        row.store(s.queries, row.load(task.q, place));
        row.store(d.dout, row.load(task.dy, place));
        const LossRow<F> loss =
            loss_row(row, row.load(slot.output), row.load(s.difference), s.norm_weight, s.norm_bias);
        row.store(d.normalised, loss.normalised);
        row.store(s.difference, loss.difference);
        row.store(s.gradient2, loss.gradient);
        row.store(s.gradient2_rows, loss.gradient);
        if (row.leads()) {
            d.inverse[row.row] = loss.inverse;
            d.projection[row.row] = loss.projection;
        }
    }
    weights.await();
    __syncthreads();

    // Z1, X2, J, G1; Z̄1, X̄2; this warp's part of P2 and Z̄2.
    Tile hidden[mlp_hidden_tiles], gradient1[mlp_hidden_tiles];
    {
        Sums<2> z[mlp_hidden_tiles] = {bias_sums(slot.bias1, 0), bias_sums(slot.bias1, 1)};
        Sums<2> read[mlp_hidden_tiles] = {z[0], z[1]};
        const Sums<2> allowed = allowed_steps(steps);
        Tile factor1;
        {
            Sums<2> score1;
            for_sums([&](int n, int i) { score1.at[n][i] = 1; });
#pragma unroll Geometry::unrolled
            for (int c = 0; c < Geometry::tiles; ++c) {
                const Tile key = load_tile(s.keys + 16 * c, stride), query = load_tile(s.queries + 16 * c, stride);
                multiply(score1, query, key);
#pragma unroll
                for (int h = 0; h < mlp_hidden_tiles; ++h) {
                    const Tile weight = first(h, c);
                    multiply(z[h], key, weight);
                    multiply(read[h], query, weight);
                }
            }
            factor1 = packed(negative_product(allowed, score1));
            if (warp == 0) {
                store_lane_sums(s.allowed, allowed);
                store_lane_sums(d.score1, score1);
                d.factor1[lane_index()] = factor1;
            }
        }
        dhidden.set(0, read[0]);  // Z̄1, until G1 is there
        dhidden.set(1, read[1]);
        Tile read_hidden[mlp_hidden_tiles];
        Sums<2> pulled[mlp_hidden_tiles];  // J
        pulled[0].clear();
        pulled[1].clear();
        multiply_rows<F>(pulled, s.gradient2_rows, second);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            Sums<2> value, curve;
            for_sums([&](int n, int i) {
                const GeluCurve gelu = gelu_curve(z[h].at[n][i]);
                value.at[n][i] = gelu.value;
                z[h].at[n][i] = gelu.slope;
                curve.at[n][i] = pulled[h].at[n][i] * gelu.curvature;
                pulled[h].at[n][i] *= gelu.slope;
            });
            slope.set(h, z[h]);
            bend.set(h, curve);
            hidden[h] = packed(value);
            gradient1[h] = packed(pulled[h]);
            value = dhidden.get(h);
            multiply(value, factor1, transposed(gradient1[h]));
            for_sums([&](int n, int i) {
                const GeluCurve gelu = gelu_curve(value.at[n][i]);
                value.at[n][i] = gelu.value;
                curve.at[n][i] = gelu.slope;
            });
            dhidden.set(h, curve);
            read_hidden[h] = packed(value);
            read_hidden_tiles.set(h, read_hidden[h]);
        }
        const Sums<2> factor = negative_product(allowed, second_scores(read_hidden, hidden));
        const Tile factor2 = packed(factor);
        factors.set(0, factor2);
        factors.set(1, packed_rest(factor, factor2));
        multiply_hidden<F>(s.partial, read_hidden, second, factor2, s.gradient2_rows);
    }
    __syncthreads();

    // Rows: backward through the output's norm.
    if (row.here()) {
        Values z = row.partial_sum(s.partial);
        const Values bias = row.load_row(slot.bias2), dout = row.load(d.dout);
#pragma unroll
        for (int i = 0; i < count; ++i) z.at[i] += bias.at[i];
        const float inverse = normalise_row(row, z);
        const Values dread2 = norm_backward_row(row, dout, z, inverse, s.norm_weight);
        row.store(d.dread2_rows, dread2);
        row.store_rest(d.dread2_rest, dread2);
        row.store(d.dbias2_rows, dread2);
#pragma unroll
        for (int i = 0; i < count; ++i) z.at[i] *= dout.at[i];
        row.add_to(d.norm_weight_sums, z);
        row.add_to(d.norm_bias_sums, dout);
    }
    __syncthreads();

    // dX̄2, dZ̄1; this warp's part of dP1 and of dZ̄1 W1ᵀ + dS1 K; dX2 begins.
    Tile dread1[mlp_hidden_tiles];
    float dbias1_change;  // of dc1, for own_hidden_column()
    {
        Sums<2> products, dallowed;
        products.clear();
        dallowed.clear();
#pragma unroll Geometry::unrolled
        for (int c = 0; c < Geometry::tiles; ++c)
            multiply(products, load_tile(d.dread2_rows + 16 * c, stride),
                     load_right_tile(s.gradient2_rows + 16 * c, stride));
        const Sums<2> allowed = load_sums(s.allowed);
        const Tile read_hidden[mlp_hidden_tiles] = {read_hidden_tiles.get(0), read_hidden_tiles.get(1)};
        const Tile dscore2 = packed(score_gradient(dallowed, products, second_scores(read_hidden, hidden), allowed));
        Sums<2> dread[mlp_hidden_tiles];
        dread[0].clear();
        dread[1].clear();
        multiply_rows<F>(dread, d.dread2_rows, second);
        const Tile dscore2_transposed = transposed(dscore2);
        products.clear();
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            multiply(dread[h], dscore2, transposed(hidden[h]));
            const Sums<2> read_slope = dhidden.get(h);
            for_sums([&](int n, int i) { dread[h].at[n][i] *= read_slope.at[n][i]; });
            dread1[h] = packed(dread[h]);
            multiply(products, dread1[h], gradient1[h]);
            Sums<2> sums;
            sums.clear();
            multiply(sums, dscore2_transposed, transposed(read_hidden_tiles.get(h)));
            dhidden.set(h, sums);
        }
        dbias1_change = hidden_sum(dread);
        const Tile dscore1 = packed(score_gradient(dallowed, products, load_sums(d.score1), load_sums(s.allowed)));
        factors.set(2, dscore1);
        step_parts(d, steps, dallowed);
        multiply_hidden<F>(s.partial, dread1, first, dscore1, s.keys);
    }
    __syncthreads();

    // Rows of dQ.
    if (row.here()) {
        Values sums = row.partial_sum(s.partial);
        const Values dout = row.load(d.dout);
#pragma unroll
        for (int i = 0; i < count; ++i) sums.at[i] += dout.at[i];
        row.store(task.dq, place, sums);
    }

    // Contributions of dW2' and dW1'; dG1, dJ, and the first part of dZ1.
    const float last[2] = {steps.last[Sums<2>::row(0)], steps.last[Sums<2>::row(2)]};
    Tile dpulled[mlp_hidden_tiles];  // dJ
    {
        float dlast[2] = {};
        Sums<2> terms[mlp_hidden_tiles];
        terms[0].clear();
        terms[1].clear();
        multiply_rows<F>(terms, s.gradient2_rows, dsecond);  // G2 dW2'ᵀ
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> value = unpacked(hidden[h]);
            Sums<2> sums = dhidden.get(h);
            for_sums([&](int n, int i) {
                dlast[i / 2] = fmaf(-value.at[n][i], terms[h].at[n][i], dlast[i / 2]);
                sums.at[n][i] = fmaf(-last[i / 2], terms[h].at[n][i], sums.at[n][i]);
            });
            dhidden.set(h, sums);
            terms[h] = bias_sums(d.dbias1, h);
        }
        multiply_rows<F>(terms, s.keys, dfirst);  // K dW1' + dc1'
        const Tile left = transposed(d.factor1[lane_index()]);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> value = unpacked(gradient1[h]);
            for_sums([&](int n, int i) {
                dlast[i / 2] = fmaf(-value.at[n][i], terms[h].at[n][i], dlast[i / 2]);
                terms[h].at[n][i] *= -last[i / 2];
            });
            multiply(terms[h], left, transposed(dread1[h]));  // dG1
            Sums<2> dinput = bend.get(h);
            const Sums<2> input_slope = slope.get(h);
            for_sums([&](int n, int i) {
                dinput.at[n][i] *= terms[h].at[n][i];
                terms[h].at[n][i] *= input_slope.at[n][i];
            });
            bend.set(h, dinput);
            dpulled[h] = packed(terms[h]);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            dlast[r] = lanes_sum<4>(dlast[r]);
            if (lane_index() % 4 == 0) d.dlast_parts[warp * mlp_rows + lane_index() / 4 + 8 * r] = dlast[r];
        }
    }
    __syncthreads();

    // This warp's part of dJ W2 - e (X2 dW2') - P2ᵀ dZ̄2. The last product is all of dV where steps are small: it keeps
    // what the rounding of its operands loses.
    {
        const Tile left = transposed(factors.get(0)), left_rest = transposed(factors.get(1));
#pragma unroll Geometry::unrolled
        for (int c = 0; c < Geometry::tiles; ++c) {
            Sums<2> sums = dweight2.product(hidden, c);
            for_sums([&](int n, int i) { sums.at[n][i] *= -last[i / 2]; });
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, dpulled[h], transposed(second(h, c)));
            const Tile dread2 = load_right_tile_transposed(d.dread2_rows + 16 * c, stride);
            multiply(sums, left, dread2);
            multiply(sums, left_rest, dread2);
            multiply(sums, left, load_right_tile_transposed(d.dread2_rest + 16 * c, stride));
            store_partial<F>(s.partial, c, sums);
        }
    }
    __syncthreads();

    // Rows: dG2, backward through the loss, dV.
    if (row.here()) {
        LossRow<F> loss;
        loss.normalised = row.load(d.normalised);
        loss.difference = row.load(s.difference);
        loss.gradient = row.load(s.gradient2);
        loss.inverse = d.inverse[row.row];
        loss.projection = d.projection[row.row];
        Values dgradient = row.partial_sum(s.partial);
        const Values dbias2 = row.load_row(d.dbias2);
        const int part = lane_index() % row.lanes;
        const float parts = part < Geometry::warps ? d.dlast_parts[part * mlp_rows + row.row] : 0.0f;
        float dlast = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            dgradient.at[i] = fmaf(-steps.last[row.row], dbias2.at[i], dgradient.at[i]);
            dlast = fmaf(-loss.gradient.at[i], dbias2.at[i], dlast);
        }
        dlast = lanes_sum<row.lanes>(dlast + parts);
        if (row.leads()) d.dlast[row.row] = dlast;
        Values ddifference, dnorm_weight;
        loss_backward_row(row, dgradient, ddifference, dnorm_weight, loss, s.norm_weight);
        row.store(d.dloss_rows, dgradient);
        row.add_to(d.dbias2_rows, dgradient);
        row.store(d.ddifference, ddifference);
        row.add_to(d.norm_weight_sums, dnorm_weight);
        row.add_to(d.norm_bias_sums, ddifference);
#pragma unroll
        for (int i = 0; i < count; ++i) ddifference.at[i] = -ddifference.at[i];
        row.store(task.dv, place, ddifference);
    }
    __syncthreads();

    // The gradient of the previous state's W2, which frees its operands' registers.
    {
        Tile read_hidden[mlp_hidden_tiles];
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            hidden[h] = transposed(hidden[h]);
            read_hidden[h] = transposed(read_hidden_tiles.get(h));
            dpulled[h] = transposed(dpulled[h]);
        }
#pragma unroll Geometry::unrolled
        for (int c = 0; c < Geometry::tiles; ++c) {
            const Tile dread2 = load_right_tile_transposed(d.dread2_rows + 16 * c, stride),
                       gradient2 = load_right_tile_transposed(s.gradient2_rows + 16 * c, stride),
                       dloss = load_right_tile_transposed(d.dloss_rows + 16 * c, stride);
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                Sums<2> sums = dweight2.get(h, c);
                multiply(sums, read_hidden[h], dread2);
                multiply(sums, dpulled[h], gradient2);
                multiply(sums, hidden[h], dloss);
                dweight2.set(h, c, sums);
            }
        }
    }
    // dX2, dZ1; this warp's part of dZ1 W1ᵀ - e (G1 dW1'ᵀ) + dS1ᵀ Q; the gradient of the rest of the
    // previous state.
    {
        Tile dinput[mlp_hidden_tiles];
        Sums<2> sums_h[mlp_hidden_tiles] = {dhidden.get(0), dhidden.get(1)};
        multiply_rows<F>(sums_h, d.dloss_rows, second);
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            const Sums<2> input_slope = slope.get(h), before = bend.get(h);
            for_sums([&](int n, int i) {
                sums_h[h].at[n][i] = fmaf(sums_h[h].at[n][i], input_slope.at[n][i], before.at[n][i]);
            });
            dinput[h] = packed(sums_h[h]);
        }
        dbias1_change += hidden_sum(sums_h);
        {
            const Tile left = transposed(factors.get(2));
#pragma unroll Geometry::unrolled
            for (int c = 0; c < Geometry::tiles; ++c) {
                Sums<2> sums = dweight1.product(gradient1, c);
                for_sums([&](int n, int i) { sums.at[n][i] *= -last[i / 2]; });
#pragma unroll
                for (int h = 0; h < mlp_hidden_tiles; ++h) multiply(sums, dinput[h], transposed(first(h, c)));
                multiply(sums, left, load_right_tile_transposed(s.queries + 16 * c, stride));
                store_partial<F>(s.partial, c, sums);
            }
        }
        if (next) weights.copy(MlpSlot<F>(next));
#pragma unroll
        for (int h = 0; h < mlp_hidden_tiles; ++h) {
            dinput[h] = transposed(dinput[h]);
            dread1[h] = transposed(dread1[h]);
        }
#pragma unroll Geometry::unrolled
        for (int c = 0; c < Geometry::tiles; ++c) {
            const Tile query = load_right_tile_transposed(s.queries + 16 * c, stride),
                       key = load_right_tile_transposed(s.keys + 16 * c, stride);
#pragma unroll
            for (int h = 0; h < mlp_hidden_tiles; ++h) {
                Sums<2> sums = dweight1.get(h, c);
                multiply(sums, dread1[h], query);
                multiply(sums, dinput[h], key);
                dweight1.set(h, c, sums);
            }
        }
        if (thread < F) {
            float change = 0;
#pragma unroll
            for (int i = 0; i < mlp_rows; ++i) change += d.dbias2_rows[i * F + thread];
            d.dbias2[thread] += change;
        }
        d.dbias1[own_hidden_column()] += dbias1_change;
        if (thread < place.tokens) {  // dE and de to dλ and dτ
            float dstep = steps.scale[place.tokens - 1] * d.dlast[thread], dscale = 0;
#pragma unroll
            for (int w = 0; w < Geometry::warps; ++w) {
                dstep += d.dstep_parts[w * mlp_rows + thread];
                dscale += d.dscale_parts[w * mlp_rows + thread];
            }
            if (thread == place.tokens - 1)
                for (int i = 0; i < place.tokens; ++i) dscale = fmaf(steps.step[i], d.dlast[i], dscale);
            d.token_scale_sums[thread] += dscale;
            task.dstep_size[place.step + static_cast<std::int64_t>(thread) * task.sizes.heads] = dstep;
        }
    }
    __syncthreads();

    // Rows of dK; the next mini-batch writes nothing of what they read before its first barrier.
    if (row.here()) {
        Values sums = row.partial_sum(s.partial);
        const Values ddifference = row.load(d.ddifference);
#pragma unroll
        for (int i = 0; i < count; ++i) sums.at[i] += ddifference.at[i];  // the target is V - K
        row.store(task.dk, place, sums);
    }
}

}  // namespace lockstep::kernels::cuda
