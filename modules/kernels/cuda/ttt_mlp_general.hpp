// TTT-MLP for every type, width and mini-batch, in plain fp32: the cases that the tensor-core kernels do not support. A
// block works on one head of one sequence; all matrices are in its part of device memory, mostly cached in L1 and L2.
#pragma once

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda::general {

constexpr int threads = 256;

// A matrix in device memory; strides in elements.
struct Matrix {
    float* data;
    int row_stride, column_stride;
    __device__ float& operator()(int i, int j) const { return data[i * row_stride + j * column_stride]; }
    __device__ Matrix transposed() const { return {data, column_stride, row_stride}; }
};

__device__ inline int thread_index() {
    return static_cast<int>(threadIdx.x);
}

// Calls store(i, j, Σ_l a(i, l) b(l, j)) for all i < m, j < n; a thread computes 4 × 2 sums at a time.
template <class Store>
__device__ inline void product(int m, int n, int k, const Matrix& a, const Matrix& b, Store&& store) {
    const int columns = (n + 1) / 2, tiles = (m + 3) / 4 * columns;
    for (int tile = thread_index(); tile < tiles; tile += threads) {
        const int row = tile / columns * 4, column = tile % columns;
        const int second = column + columns < n ? column + columns : column;
        float sums[4][2] = {};
#pragma unroll 2
        for (int l = 0; l < k; ++l) {
            const float b0 = b(l, column), b1 = b(l, second);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float value = a(row + i < m ? row + i : row, l);
                sums[i][0] = fmaf(value, b0, sums[i][0]);
                sums[i][1] = fmaf(value, b1, sums[i][1]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (row + i < m) {
                store(row + i, column, sums[i][0]);
                if (second != column) store(row + i, second, sums[i][1]);
            }
    }
}

// Calls body(row, lane), one warp per row.
template <class Body>
__device__ inline void for_rows(int rows, Body&& body) {
#pragma unroll 1
    for (int row = thread_index() / warp_width; row < rows; row += threads / warp_width)
        body(row, thread_index() % warp_width);
}
template <class Body>
__device__ inline void for_elements(int count, Body&& body) {
#pragma unroll 2
    for (int i = thread_index(); i < count; i += threads) body(i);
}
// The inner model at the start of a mini-batch, or its gradient; consecutive in memory.
struct State {
    Matrix weight1, weight2;  // [f, g], [g, f]
    float *bias1, *bias2;
};
__device__ inline State state_at(float* memory, const TttMlpSizes& sizes) {
    const int f = sizes.width, g = sizes.hidden;
    float* second = memory + f * g + g;
    return {{memory, g, 1}, {second, f, 1}, memory + f * g, second + f * g};
}

// A block's data of one mini-batch of r tokens; [r, f] matrices have rows of f, [r, g] of g, [r, r] of b.
struct Arrays {
    // keys' side
    float *key, *input, *hidden, *normalised, *difference, *gradient2, *pulled, *gradient1;
    float *inverse_deviation, *projection;
    // queries' side
    float *query, *read1, *read_hidden, *read2, *read_inverse_deviation;
    float *score1, *score2, *factor1, *factor2;  // S1, S2, P1, P2
    float *scale, *step, *last;                  // τ, λ, e
    // backward
    float *dout, *dread2, *dread_hidden, *dread1, *dhidden, *dgradient2, *dgradient1, *dpulled, *dinput;
    float *dquery, *dkey, *ddifference, *dfactor1, *dfactor2, *dscale, *dlast;
    float* dstate;  // of a piece, where a pair has several
    float* states;  // of a group
};

// Places the arrays in `memory` (may be null) and returns how many floats they take.
__host__ __device__ inline std::int64_t place(Arrays& arrays, float* memory, const TttMlpSizes& sizes, bool backward,
                                              bool summed) {
    std::int64_t used = 0;
    const std::int64_t b = sizes.mini_batch, narrow = b * sizes.width, wide = b * sizes.hidden;
    const auto take = [&](float*& to, std::int64_t count) {
        to = memory ? memory + used : nullptr;
        used += (count + 31) / 32 * 32;
    };
    for (float** to :
         {&arrays.key, &arrays.normalised, &arrays.difference, &arrays.gradient2, &arrays.query, &arrays.read2})
        take(*to, narrow);
    for (float** to :
         {&arrays.input, &arrays.hidden, &arrays.pulled, &arrays.gradient1, &arrays.read1, &arrays.read_hidden})
        take(*to, wide);
    for (float** to : {&arrays.inverse_deviation, &arrays.projection, &arrays.read_inverse_deviation, &arrays.scale,
                       &arrays.step, &arrays.last})
        take(*to, b);
    for (float** to : {&arrays.score1, &arrays.score2, &arrays.factor1, &arrays.factor2}) take(*to, b * b);
    if (backward) {
        for (float** to :
             {&arrays.dout, &arrays.dread2, &arrays.dgradient2, &arrays.dquery, &arrays.dkey, &arrays.ddifference})
            take(*to, narrow);
        for (float** to : {&arrays.dread_hidden, &arrays.dread1, &arrays.dhidden, &arrays.dgradient1, &arrays.dpulled,
                           &arrays.dinput})
            take(*to, wide);
        for (float** to : {&arrays.dfactor1, &arrays.dfactor2, &arrays.dscale}) take(*to, b * b);
        take(arrays.dlast, b);
        if (summed) take(arrays.dstate, sizes.state_count());
    }
    take(arrays.states, (backward ? sizes.group : 1) * sizes.state_count());
    return used;
}

// A mini-batch of a pair: its first token, the head's first column in q, k, v and their like, and its first step size.
struct Place {
    std::int64_t token, step;
    int column, tokens;
};
__device__ inline Place place_of(const TttMlpSizes& sizes, const TttPiece& piece, std::int64_t pair,
                                 std::int64_t number) {
    const std::int64_t sequence = pair / sizes.heads, head = pair % sizes.heads, start = number * sizes.mini_batch;
    const std::int64_t token = sequence * sizes.length + piece.begin + start, rest = piece.length - start;
    return {token, token * sizes.heads + head, static_cast<int>(head) * sizes.width,
            static_cast<int>(rest < sizes.mini_batch ? rest : sizes.mini_batch)};
}
// Element i of a mini-batch's rows [tokens, f].
template <class T>
__device__ inline T& row_element(const TttRows<T>& rows, int i, const Place& place, const TttMlpSizes& sizes) {
    return rows.first[(place.token + i / sizes.width) * rows.stride + place.column + i % sizes.width];
}

template <class T>
__device__ inline void load_rows(float* to, const TttRows<T>& from, const Place& place, const TttMlpSizes& sizes) {
    for_elements(place.tokens * sizes.width, [&](int i) { to[i] = to_float(row_element(from, i, place, sizes)); });
}
template <class T>
__device__ inline void store_rows(const TttRows<T>& to, const float* from, const Place& place,
                                  const TttMlpSizes& sizes) {
    for_elements(place.tokens * sizes.width, [&](int i) { row_element(to, i, place, sizes) = from_float<T>(from[i]); });
}

// τ, λ, e of a mini-batch, its keys, and their targets.
template <class T>
__device__ inline void load_keys(const Arrays& a, const TttRows<T>& k, const TttRows<T>& v, const float* step_size,
                                 const float* token_scale, const Place& place, const TttMlpSizes& sizes) {
    load_rows(a.key, k, place, sizes);
    for_elements(place.tokens * sizes.width, [&](int i) {
        a.difference[i] = to_float(row_element(v, i, place, sizes)) - to_float(row_element(k, i, place, sizes));
    });
    for_elements(place.tokens, [&](int i) {
        const float step = step_size[place.step + static_cast<std::int64_t>(i) * sizes.heads];
        a.scale[i] = token_scale[i];
        a.step[i] = step;
        a.last[i] = token_scale[place.tokens - 1] * step;
    });
    __syncthreads();
}

// Z1, X2, LNL2 and its gradients G2, J, G1.
__device__ inline void key_side(const Arrays& a, const State& state, const float* norm_weight, const float* norm_bias,
                                int tokens, const TttMlpSizes& sizes) {
    const int f = sizes.width, g = sizes.hidden;
    product(tokens, g, f, {a.key, f, 1}, state.weight1, [&](int i, int j, float sum) {
        const float z = sum + state.bias1[j];
        a.input[i * g + j] = z;
        a.hidden[i * g + j] = gelu_at(z).value;
    });
    __syncthreads();
    product(tokens, f, g, {a.hidden, g, 1}, state.weight2,
            [&](int i, int j, float sum) { a.normalised[i * f + j] = sum + state.bias2[j]; });
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        float* const normalised = a.normalised + row * f;
        const float inverse = normalise_row(normalised, f, lane);
        const float projection = loss_row(normalised, inverse, a.difference + row * f, a.gradient2 + row * f,
                                          norm_weight, norm_bias, f, lane);
        if (lane == 0) {
            a.inverse_deviation[row] = inverse;
            a.projection[row] = projection;
        }
    });
    __syncthreads();
    product(tokens, g, f, {a.gradient2, f, 1}, state.weight2.transposed(), [&](int i, int j, float sum) {
        a.pulled[i * g + j] = sum;
        a.gradient1[i * g + j] = sum * gelu_at(a.input[i * g + j]).slope;
    });
    __syncthreads();
}

// S and P = M ⊙ E ⊙ S of one layer, with its queries and keys [tokens, width].
__device__ inline void scores(const Arrays& a, float* score, float* factor, float* queries, float* keys, int width,
                              int tokens, const TttMlpSizes& sizes) {
    const int b = sizes.mini_batch;
    product(tokens, tokens, width, {queries, width, 1}, Matrix{keys, width, 1}.transposed(),
            [&](int i, int j, float sum) {
                score[i * b + j] = sum + 1;
                factor[i * b + j] = j <= i ? a.scale[i] * a.step[j] * (sum + 1) : 0.0f;
            });
}

// z = z0 - P G, in place.
__device__ inline void subtract(float* z, const float* factor, const float* gradient, int width, int tokens, int b) {
    for_elements(tokens * width, [&](int index) {
        const int row = index / width, column = index % width;
        float sum = 0;
        for (int j = 0; j <= row; ++j) sum = fmaf(factor[row * b + j], gradient[j * width + column], sum);
        z[index] -= sum;
    });
}

// Z̄1, X̄2, and X̂ and 1/σ of Z̄2.
template <class T>
__device__ inline void query_side(const Arrays& a, const State& state, const TttRows<T>& q, const Place& place,
                                  const TttMlpSizes& sizes) {
    const int f = sizes.width, g = sizes.hidden, b = sizes.mini_batch, tokens = place.tokens;
    load_rows(a.query, q, place, sizes);
    __syncthreads();
    scores(a, a.score1, a.factor1, a.query, a.key, f, tokens, sizes);
    product(tokens, g, f, {a.query, f, 1}, state.weight1,
            [&](int i, int j, float sum) { a.read1[i * g + j] = sum + state.bias1[j]; });
    __syncthreads();
    subtract(a.read1, a.factor1, a.gradient1, g, tokens, b);
    __syncthreads();
    for_elements(tokens * g, [&](int i) { a.read_hidden[i] = gelu_at(a.read1[i]).value; });
    __syncthreads();
    scores(a, a.score2, a.factor2, a.read_hidden, a.hidden, g, tokens, sizes);
    product(tokens, f, g, {a.read_hidden, g, 1}, state.weight2,
            [&](int i, int j, float sum) { a.read2[i * f + j] = sum + state.bias2[j]; });
    __syncthreads();
    subtract(a.read2, a.factor2, a.gradient2, f, tokens, b);
    __syncthreads();
    for_rows(tokens, [&](int row, int lane) {
        const float inverse = normalise_row(a.read2 + row * f, f, lane);
        if (lane == 0) a.read_inverse_deviation[row] = inverse;
    });
    __syncthreads();
}

// The state after the mini-batch; `from` and `to` may be the same.
__device__ inline void update(const Arrays& a, const State& to, const State& from, int tokens,
                              const TttMlpSizes& sizes) {
    const int f = sizes.width, g = sizes.hidden;
    const auto layer = [&](const Matrix& weight, const Matrix& old, float* bias, const float* old_bias,
                           const float* inputs, const float* gradients, int rows, int columns) {
        for_elements(rows * columns, [&](int index) {
            const int i = index / columns, j = index % columns;
            float sum = 0;
            for (int t = 0; t < tokens; ++t)
                sum = fmaf(a.last[t] * inputs[t * rows + i], gradients[t * columns + j], sum);
            weight(i, j) = old(i, j) - sum;
        });
        for_elements(columns, [&](int j) {
            float sum = 0;
            for (int t = 0; t < tokens; ++t) sum = fmaf(a.last[t], gradients[t * columns + j], sum);
            bias[j] = old_bias[j] - sum;
        });
    };
    layer(to.weight1, from.weight1, to.bias1, from.bias1, a.key, a.gradient1, f, g);
    layer(to.weight2, from.weight2, to.bias2, from.bias2, a.hidden, a.gradient2, g, f);
    __syncthreads();
}

}  // namespace lockstep::kernels::cuda::general
