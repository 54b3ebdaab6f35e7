// Parts of the TTT inner step shared by the linear and mlp kernels: LayerNorm, the gradient of the inner loss (LNL2),
// their backwards, and the step matrix E, on tiles of 16 tokens × f features.
//
// A tile's columns are spread over the warps of a block: a warp holds 8N of them as Sums<N>, the first is
// `first_column`; a block's warps hold different columns. Columns at and beyond `width` (the true f) are padding: they
// stay out of all sums and come out as 0. Everything is fp32. Functions that take a RowSums are called by all threads
// of the block together.
#pragma once

#include <type_traits>

#include "kernels/cuda/tile.hpp"

namespace lockstep::kernels::cuda {

constexpr float ttt_epsilon = 1e-6f;
constexpr int ttt_tile_rows = 16;

// A value for each of this lane's columns of a Sums<N>: at[n][i] belongs to column 8n + 2t + i.
template <int N>
struct Columns {
    float at[N][2];
    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < N; ++n) at[n][0] = at[n][1] = 0;
    }
};

// The columns that a warp holds.
template <int N>
struct TileColumns {
    int first_column, width;
    __device__ int column(int n, int i) const { return first_column + Sums<N>::column(n, i); }
    __device__ bool inside(int n, int i) const { return column(n, i) < width; }
    __device__ Columns<N> load(const float* from) const {  // from [width]; 0 in padding
        Columns<N> values;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) values.at[n][i] = inside(n, i) ? from[column(n, i)] : 0.0f;
        return values;
    }
    __device__ void store(float* to, const Columns<N>& values) const {  // to [width], values alike in all lanes
        if (lane_index() < 4)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (inside(n, i)) to[column(n, i)] = values.at[n][i];
    }
};

// Sums over whole rows of a tile, across the quads of lanes and the warps that share a row. The order is fixed, and all
// lanes get the same bits. One block barrier per call: the work memory has two alternating halves, and whoever writes a
// half has passed the barrier of the call in between, by which time all have read it.
template <int Warps>
class RowSums {
  public:
    static constexpr int most_terms = 5;
    static constexpr int slots = (Warps + 3) / 4 * 4;
    static constexpr int floats = 2 * most_terms * ttt_tile_rows * slots;  // of shared memory, 16-byte aligned

    __device__ RowSums(float* work, int warp) : work_(work), warp_(warp) {}

    // value[k][r]: this lane's part of term k for row g (r = 0) and row g + 8 (r = 1); becomes the row's sum.
    template <int Terms>
    __device__ void operator()(float (&value)[Terms][2]) {
        static_assert(Terms <= most_terms, "more terms than the work memory holds");
        float* const half = work_ + turn_ * (floats / 2);
        turn_ ^= 1;
        const int lane = lane_index(), row = lane / 4;
#pragma unroll
        for (int k = 0; k < Terms; ++k)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                value[k][r] += __shfl_xor_sync(all_lanes, value[k][r], 1);
                value[k][r] += __shfl_xor_sync(all_lanes, value[k][r], 2);
                if (lane % 4 == 0) half[(k * ttt_tile_rows + row + 8 * r) * slots + warp_] = value[k][r];
            }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Terms; ++k)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float* const parts = half + (k * ttt_tile_rows + row + 8 * r) * slots;
                float sum = 0;
#pragma unroll
                for (int w = 0; w < Warps; w += 4) {
                    const Vector16<float> four = load16(parts + w);
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (w + i < Warps) sum += four.at[i];
                }
                value[k][r] = sum;
            }
    }

  private:
    float* work_;
    int warp_, turn_ = 0;
};

// z becomes z - ⟨z⟩, 0 in padding. One barrier. The mean is subtracted before squaring: gradients consist of
// differences of nearly equal numbers.
template <int N, int Warps>
__device__ inline void centre(Sums<N>& z, const TileColumns<N>& columns, RowSums<Warps>& row_sums) {
    float sum[1][2] = {};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (columns.inside(n, i & 1)) sum[0][i / 2] += z.at[n][i];
    row_sums(sum);
    const float share = 1.0f / static_cast<float>(columns.width);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) z.at[n][i] = columns.inside(n, i & 1) ? z.at[n][i] - share * sum[0][i / 2] : 0.0f;
}

// z becomes X̂ = (z - ⟨z⟩)/σ. Two barriers.
template <int N, int Warps>
__device__ inline void normalise(Sums<N>& z, const TileColumns<N>& columns, RowSums<Warps>& row_sums) {
    centre(z, columns, row_sums);
    float squares[1][2] = {};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) squares[0][i / 2] += z.at[n][i] * z.at[n][i];
    row_sums(squares);
    const float share = 1.0f / static_cast<float>(columns.width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float inverse = 1.0f / sqrtf(share * squares[0][r] + ttt_epsilon);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            z.at[n][2 * r] *= inverse;
            z.at[n][2 * r + 1] *= inverse;
        }
    }
}

// LayerNorm's backward with recomputed statistics: z, the norm's input Z̄, becomes dZ̄; dγ and dβ receive this lane's
// parts of Σ dO⊙X̂ and Σ dO. dy is 0 in padding. Two barriers.
template <int N, int Warps>
__device__ inline void norm_backward(Sums<N>& z, const Sums<N>& dy, Columns<N>& dgamma, Columns<N>& dbeta,
                                     const Columns<N>& gamma, const TileColumns<N>& columns, RowSums<Warps>& row_sums) {
    centre(z, columns, row_sums);
    float sum[3][2] = {};  // Σz², Σu, Σuz; u = γ⊙dO
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float u = gamma.at[n][i & 1] * dy.at[n][i];
            sum[0][i / 2] += z.at[n][i] * z.at[n][i];
            sum[1][i / 2] += u;
            sum[2][i / 2] += u * z.at[n][i];
        }
    row_sums(sum);
    const float share = 1.0f / static_cast<float>(columns.width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float inverse = 1.0f / sqrtf(share * sum[0][r] + ttt_epsilon);
        const float mean = share * sum[1][r], projection = share * sum[2][r] * inverse;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float normal = z.at[n][2 * r + i] * inverse, d = dy.at[n][2 * r + i];
                dgamma.at[n][i] += d * normal;
                dbeta.at[n][i] += d;
                z.at[n][2 * r + i] =
                    columns.inside(n, i) ? (gamma.at[n][i] * d - mean - normal * projection) * inverse : 0.0f;
            }
    }
}

// LNL2: what the keys' side of a mini-batch saves for its backward. Values of two rows: [0] row g, [1] row g + 8.
template <int N>
struct LossTerms {
    Sums<N> normal;       // in: Z; out: X̂
    Sums<N> difference;   // in: the target T; out: D
    Sums<N> gradient;     // out: G
    float inverse[2];     // out: 1/σ
    float projection[2];  // out: ⟨U X̂⟩
};

// Two barriers: Σz; then with z centred Σz², Σγ²z, Σγ²z², Σγ(β-T)z, Σγ(β-T), from which ⟨U⟩ and ⟨U X̂⟩ follow.
template <int N, int Warps>
__device__ inline void loss_gradient(LossTerms<N>& terms, const Columns<N>& gamma, const Columns<N>& beta,
                                     const TileColumns<N>& columns, RowSums<Warps>& row_sums) {
    centre(terms.normal, columns, row_sums);
    float sum[5][2] = {};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float z = terms.normal.at[n][i], weight = gamma.at[n][i & 1];  // both 0 in padding
            const float offset = weight * (beta.at[n][i & 1] - terms.difference.at[n][i]);
            const float scaled = weight * weight * z;
            sum[0][i / 2] += z * z;
            sum[1][i / 2] += scaled;
            sum[2][i / 2] += scaled * z;
            sum[3][i / 2] += offset * z;
            sum[4][i / 2] += offset;
        }
    row_sums(sum);
    const float share = 1.0f / static_cast<float>(columns.width);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float inverse = 1.0f / sqrtf(share * sum[0][r] + ttt_epsilon);
        const float mean = share * (sum[1][r] * inverse + sum[4][r]);
        const float projection = share * (sum[2][r] * inverse + sum[3][r]) * inverse;
        terms.inverse[r] = inverse;
        terms.projection[r] = projection;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float &normal = terms.normal.at[n][2 * r + i], &difference = terms.difference.at[n][2 * r + i];
                const bool inside = columns.inside(n, i);
                normal *= inverse;
                difference = inside ? gamma.at[n][i] * normal + beta.at[n][i] - difference : 0.0f;
                terms.gradient.at[n][2 * r + i] =
                    inside ? (gamma.at[n][i] * difference - mean - normal * projection) * inverse : 0.0f;
            }
    }
}

// LNL2's backward. dgradient, dG in and 0 in padding, becomes dZ; ddifference receives dD = -dT; dγ and dβ receive this
// lane's parts. `rider`: another row sum of the caller's, computed along. Two barriers.
template <int N, int Warps>
__device__ inline void loss_gradient_backward(Sums<N>& dgradient, Sums<N>& ddifference, Columns<N>& dgamma,
                                              Columns<N>& dbeta, const LossTerms<N>& terms, const Columns<N>& gamma,
                                              const TileColumns<N>& columns, float (&rider)[2],
                                              RowSums<Warps>& row_sums) {
    float sum[4][2] = {};  // ΣB, ΣBX̂, ΣdG·G, the rider; B = dG/σ
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float b = dgradient.at[n][i] * terms.inverse[i / 2];
            sum[0][i / 2] += b;
            sum[1][i / 2] += b * terms.normal.at[n][i];
            sum[2][i / 2] += dgradient.at[n][i] * terms.gradient.at[n][i];
        }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[3][r] = rider[r];
    row_sums(sum);
    const float share = 1.0f / static_cast<float>(columns.width);
    float dx_sum[2][2] = {};  // ΣdX̂, ΣdX̂X̂
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = i / 2;
            const bool inside = columns.inside(n, i & 1);
            const float x = terms.normal.at[n][i], weight = gamma.at[n][i & 1], difference = terms.difference.at[n][i];
            const float b = dgradient.at[n][i] * terms.inverse[r], projection = share * sum[1][r];
            const float du = inside ? b - share * sum[0][r] - x * projection : 0.0f;
            const float dd = weight * du;
            const float dx = weight * dd - b * terms.projection[r] - weight * difference * projection;
            ddifference.at[n][i] = dd;
            dgradient.at[n][i] = dx;
            dx_sum[0][r] += dx;
            dx_sum[1][r] += dx * x;
            dgamma.at[n][i & 1] += du * difference + dd * x;
            dbeta.at[n][i & 1] += dd;
        }
    float kept[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        rider[r] = sum[3][r];
        kept[r] = sum[2][r];
    }
    row_sums(dx_sum);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = i / 2;
            const float factor = share * (dx_sum[1][r] + kept[r]);
            dgradient.at[n][i] =
                columns.inside(n, i & 1)
                    ? (dgradient.at[n][i] - share * dx_sum[0][r] - terms.normal.at[n][i] * factor) * terms.inverse[r]
                    : 0.0f;
        }
}

// The sum over a tile's rows (tokens) of this lane's columns, in all 8 lanes that hold a column: turns a lane's parts
// into whole column sums.
template <int N>
__device__ inline void sum_over_rows(Columns<N>& values) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int distance = 4; distance < warp_width; distance *= 2)
                values.at[n][i] += __shfl_xor_sync(all_lanes, values.at[n][i], distance);
}

// The transpose of a 16 × 16 tile, rounded to T, as a left operand. `work` is transpose_floats floats of shared memory
// of the warp's own for T = float; 16-bit types go through registers.
constexpr int transpose_stride = 20, transpose_floats = 16 * transpose_stride;
template <class T>
__device__ inline void to_left_transposed(Left<T, 1>& left, const Sums<2>& sums, float* work) {
    if constexpr (std::is_same_v<T, float>) {
        __syncwarp(all_lanes);  // an earlier use of `work` is over
        store_sums(work, transpose_stride, sums);
        __syncwarp(all_lanes);
        load_left_transposed(left, work, transpose_stride);
    } else {
        Left<T, 1> plain;
        to_left(plain, sums);
        left.at[0][0] = move_matrix_transposed(plain.at[0][0]);
        left.at[0][1] = move_matrix_transposed(plain.at[0][2]);
        left.at[0][2] = move_matrix_transposed(plain.at[0][1]);
        left.at[0][3] = move_matrix_transposed(plain.at[0][3]);
    }
}

// The steps of a mini-batch in shared memory: τ and λ [16], 0 for nonexistent tokens.
struct TileSteps {
    const float *tau, *lambda;
    int rows;                                                                         // existing tokens
    __device__ float last(int token) const { return tau[rows - 1] * lambda[token]; }  // e
    // M⊙E at (i, j).
    __device__ float step(int i, int j) const { return j <= i ? tau[i] * lambda[j] : 0.0f; }
};

// The backward of the steps, by one warp, in two parts, since de is known later than the rest of dE. `work` is 32
// floats of the warp's own shared memory, kept between the parts. dtau: of this lane's rows, +=.
//
// First: dE, M applied, without de. `work` holds the parts of dλ.
__device__ inline void steps_backward(float* work, float (&dtau)[2], const Sums<2>& dstep, const TileSteps& steps) {
    const int row = lane_index() / 4;
    float by_row[2] = {};
    Columns<2> by_column;
    by_column.clear();
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            by_row[i / 2] += steps.lambda[Sums<2>::column(n, i)] * dstep.at[n][i];
            by_column.at[n][i & 1] += steps.tau[row + 8 * (i / 2)] * dstep.at[n][i];
        }
    sum_over_rows(by_column);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        by_row[r] += __shfl_xor_sync(all_lanes, by_row[r], 1);
        by_row[r] += __shfl_xor_sync(all_lanes, by_row[r], 2);
        dtau[r] += by_row[r];
    }
    if (row == 0)
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) work[Sums<2>::column(n, i)] = by_column.at[n][i];
}

// Then: de[r] of tokens g and g + 8, which belongs to the last row. Writes dλ of existing tokens to memory, `stride`
// apart.
__device__ inline void last_step_backward(float* dlambda, std::int64_t stride, float (&dtau)[2], const float (&de)[2],
                                          const TileSteps& steps, float* work) {
    const int lane = lane_index(), row = lane / 4;
    if (lane % 4 == 0) {
        work[16 + row] = de[0];
        work[24 + row] = de[1];
    }
    __syncwarp(all_lanes);
    const float share = lane < 16 ? work[16 + lane] : 0.0f;
    if (lane < steps.rows) dlambda[lane * stride] = work[lane] + steps.tau[steps.rows - 1] * share;
    const float last = warp_sum(lane < 16 ? steps.lambda[lane] * share : 0.0f);  // Σ λ_j de_j
#pragma unroll
    for (int r = 0; r < 2; ++r)
        if (row + 8 * r == steps.rows - 1) dtau[r] += last;
}

}  // namespace lockstep::kernels::cuda
