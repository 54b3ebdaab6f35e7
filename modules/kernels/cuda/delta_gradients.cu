// Gated DeltaNet backward, second half: all gradients of a chunk, from the state before it and the gradient of the
// state behind it. A block takes a chunk of a (sequence, head) pair, some columns of the values at a time. Its first
// four warps solve the chunk again and gather what queries get, the other four go back through the solution and gather
// what keys get; each warp has 16 tokens.
#include <utility>

#include "kernels/cuda/delta_tile.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct GradientParameters {
    DeltaRows<const T> q, k, v, dy;
    DeltaRows<T> dq, dk, dv;   // dq and dk: unless heads share keys
    float *head_dq, *head_dk;  // [N, H, fk]; else null
    const float *log_decay, *strength;
    const DeltaOperand<T>*states, *dstates;
    float *dlog_decay, *dstrength;
    const DeltaOperand<T>* inverses;
    std::int64_t length, chunks;
    std::int64_t heads, key_heads, key_width, value_width;
    bool aligned, values_aligned;  // q and k; v and dy
};

template <class T, int K>
struct GradientShared {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    Operand queries[Tiles::keys], keys[Tiles::keys];
    Operand inverse[Tiles::square];  // at the end: E ⊙ dP
    Operand dsystem[Tiles::square];  // Pᵀ; at the end: β E ⊙ dA
    Operand state[Tiles::state], dstate[Tiles::state];
    // V, dO, B, U, dU, dB
    Operand values[Tiles::values], dy[Tiles::values], right_side[Tiles::values], solution[Tiles::values],
        dsolution[Tiles::values], dright_side[Tiles::values];
    DeltaGates gates;
    // Gradients of Σ log_decay and of strengths: what tokens get, of both halves of the warps; what each warp takes
    // from the tokens before its own.
    float dsum[2][delta_chunk], dstrength[2][delta_chunk], taken[8][delta_chunk];
    float work[32];
};

// Sums over the columns of a warp's rows, from those of its lanes for rows g and g + 8.
__device__ inline void store_row_sums(float* to, const float (&sums)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = lanes_sum<4>(sums[half]);
        if (lane_index() % 4 == 0) to[lane_index() / 4 + 8 * half] = sum;
    }
}

// Of 64 columns over a warp's 16 rows.
__device__ inline void store_column_sums(float* to, const Sums<8>& values) {
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float sum = values.at[n][i] + values.at[n][i + 2];
#pragma unroll
            for (int distance = 4; distance < warp_width; distance *= 2)
                sum += __shfl_xor_sync(all_lanes, sum, distance);
            if (lane_index() < 4) to[8 * n + 2 * lane_index() + i] = sum;
        }
}

// Σ over columns of a ⊙ (this warp's rows of a tile), added to `sums` of rows g and g + 8.
template <int N, class Operand>
__device__ inline void add_row_products(float (&sums)[2], const Sums<N>& a, const Operand* tile, int stride) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sums[i / 2] =
                fmaf(a.at[n][i], to_float(tile[Sums<N>::row(i) * stride + Sums<N>::column(n, i)]), sums[i / 2]);
}
__device__ inline void add_rows(float (&sums)[2], const Sums<8>& values) {
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i / 2] += values.at[n][i];
}

// Rows of fp32 sums to rows of a head's queries or keys.
template <int N, class Out>
__device__ inline void store_keys(Out* to, std::int64_t stride, Sums<N>& values, int first_row, int rows, int columns) {
    each_sum(values, first_row, [&](float value, int row, int column) {
        if (row < rows && column < columns) to[row * stride + column] = from_float<Out>(value);
    });
}

template <class T, int K>
__global__ void __launch_bounds__(threads, K == 64 && sizeof(T) == 2 ? 2 : 1)
    delta_gradients_kernel(GradientParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int N = Tiles::slice / 8, slice_steps = Tiles::slice / 16, stride = Tiles::slice_stride;
    auto& shared = *shared_memory<GradientShared<T, K>>();
    const DeltaGates& gates = shared.gates;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width;
    const bool of_queries = warp < 4;
    const int first_row = 16 * (warp % 4), key_row = first_row * Tiles::key_stride, value_row = first_row * stride;
    const std::int64_t chunk = blockIdx.y;
    const int key_width = static_cast<int>(p.key_width), value_width = static_cast<int>(p.value_width);
    const DeltaPlace place(static_cast<int>(blockIdx.x), chunk, p.length, static_cast<int>(p.heads),
                           static_cast<int>(p.key_heads));
    const std::int64_t at_chunk = place.pair * p.chunks + chunk;
    const int slices = (value_width + Tiles::slice - 1) / Tiles::slice;
    const auto key_at = [&](const auto& rows) {
        return rows.first + place.token * rows.stride + place.key_head * key_width;
    };
    const auto value_at = [&](const auto& rows, int row, int column) {
        return rows.first + (place.token + row) * rows.stride + place.head * value_width + column;
    };

    delta_load<K>(shared.queries, Tiles::key_stride, key_at(p.q), p.q.stride, place.rows, key_width, p.aligned, thread,
                  threads);
    delta_load<K>(shared.keys, Tiles::key_stride, key_at(p.k), p.k.stride, place.rows, key_width, p.aligned, thread,
                  threads);
    delta_load_matrix<delta_chunk, delta_chunk>(shared.inverse, Tiles::square_stride,
                                                p.inverses + at_chunk * delta_chunk * delta_chunk, thread, threads);
    copy_async_commit();
    const std::int64_t gates_at = place.token * p.heads + place.head;
    if (warp == 0)
        shared.gates.set(DeltaGates::fetch(p.log_decay + gates_at, p.strength + gates_at, p.heads, place.rows));
    copy_async_wait<0>();
    __syncthreads();

    // Pᵀ = (E ⊙ (Q Kᵀ))ᵀ of the keys' tokens, each warp's for itself
    Operand* const transposed_scores = shared.dsystem + first_row * Tiles::square_stride;
    if (!of_queries) {
        Left<Operand, K / 16> left;
        Sums<8> scores;
        load_left(left, shared.keys + key_row, Tiles::key_stride);
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, shared.queries, Tiles::key_stride);
        each_sum(scores, first_row,
                 [&](float& score, int j, int i) { score = j <= i ? gates.between(i, j) * score : 0.0f; });
        store_sums_in_pairs(transposed_scores, Tiles::square_stride, scores);
    }

    Sums<K / 8> dkeys;  // or of the queries
    Sums<8> dsquare;    // dP, or -dA
    dkeys.clear();
    dsquare.clear();
    float dsum[2] = {}, dstrength[2] = {};  // of rows g and g + 8
    float dsum_of_end = 0;                  // of the whole chunk's decay
    for (int first_column = 0; first_column < value_width; first_column += Tiles::slice) {
        const int columns = min(value_width - first_column, Tiles::slice);
        barrier_of_warps();  // the slice before is done with the tiles
        delta_load<Tiles::slice>(shared.dy, stride, value_at(p.dy, 0, first_column), p.dy.stride, place.rows, columns,
                                 p.values_aligned, thread, threads);
        delta_load<Tiles::slice>(shared.values, stride, value_at(p.v, 0, first_column), p.v.stride, place.rows, columns,
                                 p.values_aligned, thread, threads);
        const std::int64_t state_at = (at_chunk * slices + first_column / Tiles::slice) * K * Tiles::slice;
        delta_load_matrix<K, Tiles::slice>(shared.state, stride, p.states + state_at, thread, threads);
        delta_load_matrix<K, Tiles::slice>(shared.dstate, stride, p.dstates + state_at, thread, threads);
        copy_async_commit();
        copy_async_wait<0>();
        barrier_of_warps();
        for (int i = thread; i < K * Tiles::slice; i += threads) {
            const int at = i / Tiles::slice * stride + i % Tiles::slice;
            dsum_of_end = fmaf(gates.all() * to_float(shared.state[at]), to_float(shared.dstate[at]), dsum_of_end);
        }

        Left<Operand, slice_steps> slice_left;
        Left<Operand, 4> square_left;
        Sums<N> rows, residual;
        {
            Left<Operand, K / 16> left;
            load_left(left, shared.keys + key_row, Tiles::key_stride);
            rows.clear();
            multiply<Right::rows_of_k>(rows, left, of_queries ? shared.state : shared.dstate, stride);
        }
        if (of_queries) {  // R = V - γ ⊙ (K S), B = β ⊙ R
            each_sum(rows, first_row, [&](float& value, int row, int column) {
                value = fmaf(-gates.before(row), value, to_float(shared.values[row * stride + column]));
            });
            residual = rows;
            scale_rows(rows, first_row, [&](int row) { return gates.strength[row]; });
            store_sums_in_pairs(shared.right_side + value_row, stride, rows);
        } else {  // dU = Pᵀ dO + e ⊙ (K dS)
            scale_rows(rows, first_row, [&](int row) { return gates.after(row); });
            residual = rows;
            load_left(square_left, transposed_scores, Tiles::square_stride);
            multiply<Right::rows_of_k>(rows, square_left, shared.dy, stride);
            store_sums_in_pairs(shared.dsolution + value_row, stride, rows);
        }
        barrier_of_warps();

        // U = (I + A)⁻¹ B, dB = (I + A)⁻ᵀ dU
        rows.clear();
        if (of_queries) {
            load_left(square_left, shared.inverse + first_row * Tiles::square_stride, Tiles::square_stride);
            multiply<Right::rows_of_k>(rows, square_left, shared.right_side, stride);
            store_sums_in_pairs(shared.solution + value_row, stride, rows);
        } else {
            load_left_transposed(square_left, shared.inverse + first_row, Tiles::square_stride);
            multiply<Right::rows_of_k>(rows, square_left, shared.dsolution, stride);
            store_sums_in_pairs(shared.dright_side + value_row, stride, rows);
        }
        barrier_of_warps();

        if (of_queries) {
            // dP = dO Uᵀ, dQ = γ ⊙ (dO Sᵀ)
            load_left(slice_left, shared.dy + value_row, stride);
            multiply<Right::rows_of_n>(dsquare, slice_left, shared.solution, stride);
            Sums<N> scaled;
            each_sum(scaled, first_row, [&](float& value, int row, int column) {
                value = gates.before(row) * to_float(shared.dy[row * stride + column]);
            });
            to_left(slice_left, scaled);
            multiply<Right::rows_of_n>(dkeys, slice_left, shared.state, stride);
            // dβ = dB · R; the decay before the chunk: -dR · γ (K S) = β dB · (R - V)
            float products[2] = {};
            add_row_products(products, residual, shared.dright_side + value_row, stride);
            each_sum(residual, first_row, [&](float& value, int row, int column) {
                value -= to_float(shared.values[row * stride + column]);
            });
            float decayed[2] = {};
            add_row_products(decayed, residual, shared.dright_side + value_row, stride);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                dstrength[half] += products[half];
                dsum[half] = fmaf(gates.strength[first_row + Sums<N>::row(2 * half)], decayed[half], dsum[half]);
            }
        } else {
            // -dA = dB Uᵀ, dV = β dB, dK = -γ ⊙ (dR Sᵀ) + e ⊙ (U dSᵀ)
            to_left(slice_left, rows);
            multiply<Right::rows_of_n>(dsquare, slice_left, shared.solution, stride);
            each_sum(rows, first_row, [&](float& value, int row, int column) {
                value *= gates.strength[row];
                if (row < place.rows && column < columns)
                    *value_at(p.dv, row, first_column + column) = from_float<T>(value);
                value *= -gates.before(row);
            });
            to_left(slice_left, rows);
            multiply<Right::rows_of_n>(dkeys, slice_left, shared.state, stride);
            float carried[2] = {};  // what the decay behind token j has taken from U_j
            add_row_products(carried, residual, shared.solution + value_row, stride);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                dsum[half] -= carried[half];
                dsum_of_end += carried[half];
            }
            each_sum(rows, first_row, [&](float& value, int row, int column) {
                value = gates.after(row) * to_float(shared.solution[row * stride + column]);
            });
            to_left(slice_left, rows);
            multiply<Right::rows_of_n>(dkeys, slice_left, shared.dstate, stride);
        }
    }

    Left<Operand, 4> square_left;
    {
        Left<Operand, K / 16> left;
        load_left(left, (of_queries ? shared.queries : shared.keys) + key_row, Tiles::key_stride);
        Sums<8> products;
        products.clear();
        multiply<Right::rows_of_n>(products, left, shared.keys, Tiles::key_stride);
        if (of_queries) {  // Σ dO · γ (Q S) = Q · dQ so far
            add_row_products(dsum, dkeys, shared.queries + key_row, Tiles::key_stride);
            each_sum(dsquare, first_row,
                     [&](float& value, int i, int j) { value = j <= i ? gates.between(i, j) * value : 0.0f; });
        } else {
            each_sum(dsquare, first_row,
                     [&](float& value, int i, int j) { value = j < i ? -gates.between(i, j) * value : 0.0f; });
        }
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) products.at[n][i] *= dsquare.at[n][i];
        if (!of_queries) {
            add_rows(dstrength, products);
            const auto strength = [&](int row) { return gates.strength[row]; };
            scale_rows(products, first_row, strength);
            scale_rows(dsquare, first_row, strength);
        }
        add_rows(dsum, products);
        store_column_sums(shared.taken[warp], products);
    }
    const int half = of_queries ? 0 : 1;
    store_row_sums(shared.dsum[half] + first_row, dsum);
    store_row_sums(shared.dstrength[half] + first_row, dstrength);
    barrier_of_warps();  // nothing reads the inverse any more
    store_sums_in_pairs((of_queries ? shared.inverse : shared.dsystem) + first_row * Tiles::square_stride,
                        Tiles::square_stride, dsquare);
    to_left(square_left, dsquare);
    multiply<Right::rows_of_k>(dkeys, square_left, shared.keys, Tiles::key_stride);
    const float whole = block_sum(dsum_of_end, shared.work);
    if (!of_queries) {
        load_left_transposed(square_left, shared.inverse + first_row, Tiles::square_stride);
        multiply<Right::rows_of_k>(dkeys, square_left, shared.queries, Tiles::key_stride);
        load_left_transposed(square_left, shared.dsystem + first_row, Tiles::square_stride);
        multiply<Right::rows_of_k>(dkeys, square_left, shared.keys, Tiles::key_stride);
    }
    if (p.head_dq)
        store_keys((of_queries ? p.head_dq : p.head_dk) + gates_at * key_width, p.heads * key_width, dkeys, first_row,
                   place.rows, key_width);
    else
        store_keys(of_queries ? key_at(p.dq) : key_at(p.dk), of_queries ? p.dq.stride : p.dk.stride, dkeys, first_row,
                   place.rows, key_width);

    if (thread < delta_chunk) {
        float sum = shared.dsum[0][thread] + shared.dsum[1][thread];
#pragma unroll
        for (int from = 0; from < 8; ++from) sum -= shared.taken[from][thread];
        shared.dsum[0][thread] = thread == delta_chunk - 1 ? sum + whole : sum;
    }
    __syncthreads();
    if (thread < place.rows) {
        float sum = 0;
        for (int j = delta_chunk - 1; j >= thread; --j) sum += shared.dsum[0][j];
        p.dlog_decay[gates_at + thread * p.heads] = sum;
        p.dstrength[gates_at + thread * p.heads] = shared.dstrength[0][thread] + shared.dstrength[1][thread];
    }
}

template <class T>
__global__ void __launch_bounds__(threads) delta_heads_kernel(DeltaRows<T> out, const float* heads, int each,
                                                              int key_heads, int key_width, std::int64_t rows) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x,
                       width = key_heads * key_width;
    if (at >= rows * width) return;
    const std::int64_t row = at / width, column = at % width, head = column / key_width;
    const float* from = heads + (row * key_heads + head) * each * key_width + column % key_width;
    float sum = 0;
    for (int i = 0; i < each; ++i) sum += from[static_cast<std::int64_t>(i) * key_width];
    out.first[row * out.stride + column] = from_float<T>(sum);
}

}  // namespace

void delta_gradients(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        auto p = delta_parameters<T, GradientParameters<T>>(arguments);
        p.q = delta_rows<const T>(arguments.q);
        p.v = delta_rows<const T>(arguments.v);
        p.dy = delta_rows<const T>(arguments.dy);
        p.dq = delta_rows<T>(arguments.dq);
        p.dk = delta_rows<T>(arguments.dk);
        p.dv = delta_rows<T>(arguments.dv);
        p.head_dq = arguments.head_dq;
        p.head_dk = arguments.head_dk;
        p.states = static_cast<const DeltaOperand<T>*>(arguments.saved);
        p.dstates = static_cast<const DeltaOperand<T>*>(arguments.dstates);
        p.dlog_decay = arguments.dlog_decay;
        p.dstrength = arguments.dstrength;
        p.value_width = shape.value_width;
        p.aligned = p.aligned && delta_aligned<T>(shape.key_width, {arguments.q});
        p.values_aligned = delta_aligned<T>(shape.value_width, {arguments.v, arguments.dy});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            static_assert(sizeof(GradientShared<T, K>) <= delta_shared_limit);
            launch({"delta_gradients", dim3(static_cast<unsigned>(arguments.pairs()), static_cast<unsigned>(p.chunks)),
                    threads, sizeof(GradientShared<T, K>), arguments.stream},
                   delta_gradients_kernel<T, K>, p);
        });
    });
}

void delta_add_heads(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    const std::int64_t rows = shape.batch * shape.length;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        for (const auto& [out, heads] : {std::pair(arguments.dq, arguments.head_dq), {arguments.dk, arguments.head_dk}})
            launch({"delta_heads", dim3(blocks_for(rows * shape.key_heads * shape.key_width, threads)), threads, 0,
                    arguments.stream},
                   delta_heads_kernel<T>, delta_rows<T>(out), heads, static_cast<int>(shape.heads / shape.key_heads),
                   static_cast<int>(shape.key_heads), static_cast<int>(shape.key_width), rows);
    });
}

}  // namespace lockstep::kernels::cuda
