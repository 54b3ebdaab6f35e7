// Backward of causal attention, after FlashAttention-2 (Dao 2023): weights are recomputed from log_sum_exp. Gradients
// of keys and values, and those of queries, come from separate kernels, which costs two matrix products in addition to
// five but needs no atomics: every sum has one owner and one order.
//
// With P the weights, P[i,j] = exp(scale q_i·k_j - log_sum_exp_i), and delta_i = dy_i·y_i:
// dV = Pᵀ dY, dS = P ⊙ (dY Vᵀ - delta), dQ = scale dS K, dK = scale dSᵀ Q.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int delta_threads = 256, delta_lanes = 8;

// delta [B, H, L], 8 lanes per row.
template <class T>
__global__ void __launch_bounds__(delta_threads)
    attention_delta_kernel(float* delta, const T* dy, const T* y, std::int64_t rows, AttentionSizes sizes) {
    const int lane = static_cast<int>(threadIdx.x) % delta_lanes;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (delta_threads / delta_lanes) +
                             static_cast<int>(threadIdx.x) / delta_lanes;  // of [B·L, H]
    float sum = 0;
    if (row < rows) {
        const std::int64_t at = row * sizes.width;
        if (sizes.vectors) {
            for (int c = lane * Vector16<T>::count; c < sizes.width; c += delta_lanes * Vector16<T>::count) {
                const Vector16<T> a = load16(dy + at + c), b = load16(y + at + c);
#pragma unroll
                for (int i = 0; i < Vector16<T>::count; ++i) sum = fmaf(to_float(a.at[i]), to_float(b.at[i]), sum);
            }
        } else {
            for (int c = lane; c < sizes.width; c += delta_lanes)
                sum = fmaf(to_float(dy[at + c]), to_float(y[at + c]), sum);
        }
    }
#pragma unroll
    for (int distance = delta_lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
    if (lane == 0 && row < rows) {
        const std::int64_t token = row / sizes.heads, sequence = token / sizes.query_length;
        delta[sizes.row_head(static_cast<int>(sequence), static_cast<int>(row % sizes.heads)) +
              token % sizes.query_length] = sum;
    }
}

template <class W>
struct KeyGradientTile {
    static constexpr int warps = W::row_bytes > 600 ? 2 : 4, threads = warps * warp_width;
    static constexpr int blocks_of_16 = W::exact && W::width == 64 ? 2 : 1, warp_rows = 16 * blocks_of_16;
    static constexpr int keys = warps * warp_rows, queries = W::row_bytes > 600 ? 16 : 32;
    // Registers hold both gradients of a tile up to width 128; beyond, each has its own pass.
    static constexpr bool at_once = W::width <= 128;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(2 * keys + 4 * queries) * static_cast<std::size_t>(W::row_bytes) +
        4 * queries * sizeof(float);
};

// A block owns a tile of keys of one key head and walks over the queries that see it, head by head of its group.
// Everything is transposed: rows are keys, columns are queries, so that weights pass from one product to the next in
// registers.
template <class W, bool makes_dk, bool makes_dv>
__global__ void __launch_bounds__(KeyGradientTile<W>::threads, 1)
    attention_key_gradient_kernel(typename W::T* dk, typename W::T* dv, const typename W::T* dy, const typename W::T* q,
                                  const typename W::T* k, const typename W::T* v, const float* log_sum_exp,
                                  const float* delta, AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = KeyGradientTile<W>;
    constexpr int M = Tile::blocks_of_16, N = Tile::queries / 8, buffer = Tile::queries * W::stride;
    T* keys = shared_memory<T>();
    T* values = keys + Tile::keys * W::stride;
    T* queries = values + Tile::keys * W::stride;  // double-buffered, followed by the output's gradients
    T* gradients = queries + 2 * buffer;
    float* rows = reinterpret_cast<float*>(gradients + 2 * buffer);  // double-buffered [log_sum_exp, delta][queries]

    const int tiles = (sizes.key_length + Tile::keys - 1) / Tile::keys, key_heads = sizes.heads / sizes.group;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = block % tiles * Tile::keys;  // most queries see the first keys: start with them
    const int sequence = head_of_all / key_heads, key_head = head_of_all % key_heads;
    const int query_stride = sizes.query_stride(), key_stride = sizes.key_stride();
    const std::int64_t key_at = sizes.key_head(sequence, key_head) + static_cast<std::int64_t>(first) * key_stride;
    const int valid_keys = sizes.key_length - first;

    const int first_tile = first / Tile::queries;
    const int query_tiles = (sizes.query_length + Tile::queries - 1) / Tile::queries - first_tile;
    const int steps = query_tiles * sizes.group;
    const int thread = static_cast<int>(threadIdx.x);
    const auto query_of = [&](int step) { return (first_tile + step % query_tiles) * Tile::queries; };
    // Returns what this thread keeps for `rows`, of the tile of queries.
    const auto load_queries = [&](int step) {
        const int head = key_head * sizes.group + step / query_tiles, query = query_of(step);
        const std::int64_t at = sizes.query_head(sequence, head) + static_cast<std::int64_t>(query) * query_stride;
        load_rows<W, Tile::queries, Tile::threads>(queries + step % 2 * buffer, q + at, query_stride,
                                                   sizes.query_length - query, sizes);
        load_rows<W, Tile::queries, Tile::threads>(gradients + step % 2 * buffer, dy + at, query_stride,
                                                   sizes.query_length - query, sizes);
        copy_async_commit();
        // Queries beyond the sequence get weight 0.
        const int row = query + thread % Tile::queries;
        const bool valid = row < sizes.query_length;
        const std::int64_t place = sizes.row_head(sequence, head) + row;
        if (thread < Tile::queries) return valid ? log_sum_exp[place] * log2_of_e : INFINITY;
        return valid && thread < 2 * Tile::queries ? delta[place] : 0.0f;
    };
    static_assert(Tile::threads >= 2 * Tile::queries);

    load_rows<W, Tile::keys, Tile::threads>(keys, k + key_at, key_stride, valid_keys, sizes);
    load_rows<W, Tile::keys, Tile::threads>(values, v + key_at, key_stride, valid_keys, sizes);
    float row_value = load_queries(0);

    const int warp_row = thread / warp_width * Tile::warp_rows, warp_first = first + warp_row;
    T* warp_keys = keys + warp_row * W::stride;
    T* warp_values = values + warp_row * W::stride;
    Sums<makes_dk ? W::width / 8 : 1> key_sums[M];
    Sums<makes_dv ? W::width / 8 : 1> value_sums[M];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        key_sums[m].clear();
        value_sums[m].clear();
    }
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        float* step_rows = rows + step % 2 * 2 * Tile::queries;
        if (thread < 2 * Tile::queries) step_rows[thread] = row_value;
        copy_async_wait<0>();
        __syncthreads();  // this tile has arrived, and the next one's buffer is free
        if (step + 1 < steps) row_value = load_queries(step + 1);
        const int query = query_of(step);
        if (query + Tile::queries <= warp_first) continue;  // all precede the warp's keys
        const T* tile_queries = queries + step % 2 * buffer;
        const T* tile_gradients = gradients + step % 2 * buffer;

        Sums<N> weights[M];
        Left<T, Tile::queries / 16> left[M];
#pragma unroll
        for (int m = 0; m < M; ++m) weights[m].clear();
        multiply_rows<W>(weights, warp_keys, tile_queries);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float level = step_rows[Sums<1>::column(n, i)];
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int j = i; j < 4; j += 2)
                        weights[m].at[n][j] = fast_exp2(fmaf(weights[m].at[n][j], sizes.scale_log2, -level));
            }
        if (query < warp_first + Tile::warp_rows - 1)
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int n = 0; n < N; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (warp_first + 16 * m + Sums<1>::row(i) > query + Sums<1>::column(n, i))
                            weights[m].at[n][i] = 0;
        if constexpr (makes_dv) {
#pragma unroll
            for (int m = 0; m < M; ++m) to_left(left[m], weights[m]);
            multiply<Right::rows_of_k>(value_sums, left, tile_gradients, W::stride);
        }
        if constexpr (makes_dk) {
            Sums<N> slopes[M];
#pragma unroll
            for (int m = 0; m < M; ++m) slopes[m].clear();
            multiply_rows<W>(slopes, warp_values, tile_gradients);
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float along = step_rows[Tile::queries + Sums<1>::column(n, i)];
#pragma unroll
                    for (int m = 0; m < M; ++m)
#pragma unroll
                        for (int j = i; j < 4; j += 2)
                            slopes[m].at[n][j] = weights[m].at[n][j] * (slopes[m].at[n][j] - along);
                }
#pragma unroll
            for (int m = 0; m < M; ++m) to_left(left[m], slopes[m]);
            multiply<Right::rows_of_k>(key_sums, left, tile_queries, W::stride);
        }
    }

    const std::int64_t warp_at = key_at + static_cast<std::int64_t>(warp_row) * key_stride;
    if constexpr (makes_dk)
        store_warp_sums<W>(
            dk + warp_at, warp_keys, key_sums, [&](int, int) { return sizes.scale; }, key_stride, valid_keys - warp_row,
            sizes);
    if constexpr (makes_dv)
        store_warp_sums<W>(
            dv + warp_at, warp_values, value_sums, [](int, int) { return 1.0f; }, key_stride, valid_keys - warp_row,
            sizes);
}

template <class W>
struct QueryGradientTile {
    static constexpr int warps = W::row_bytes > 600 ? 2 : 4, threads = warps * warp_width;
    static constexpr int blocks_of_16 = W::exact ? 2 : 1, warp_rows = 16 * blocks_of_16;
    static constexpr int queries = warps * warp_rows, keys = W::row_bytes > 600 ? 16 : 32;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(2 * queries + 4 * keys) * static_cast<std::size_t>(W::row_bytes) +
        2 * queries * sizeof(float) + sizeof(std::int64_t);
};

// A block owns a tile of queries and walks over the keys they see.
template <class W>
__global__ void __launch_bounds__(QueryGradientTile<W>::threads, 1)
    attention_query_gradient_kernel(typename W::T* dq, const typename W::T* dy, const typename W::T* q,
                                    const typename W::T* k, const typename W::T* v, const float* log_sum_exp,
                                    const float* delta, AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = QueryGradientTile<W>;
    constexpr int M = Tile::blocks_of_16, N = Tile::keys / 8, buffer = Tile::keys * W::stride;
    T* queries = shared_memory<T>();
    T* gradients = queries + Tile::queries * W::stride;
    T* keys = gradients + Tile::queries * W::stride;  // double-buffered, followed by the values
    T* values = keys + 2 * buffer;
    float* levels = reinterpret_cast<float*>(values + 2 * buffer);  // per query: log_sum_exp in units of log2
    float* deltas = levels + Tile::queries;
    std::int64_t* output_at =
        reinterpret_cast<std::int64_t*>(deltas + Tile::queries);  // not kept in registers over the loop

    const int tiles = (sizes.query_length + Tile::queries - 1) / Tile::queries;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = (tiles - 1 - block % tiles) * Tile::queries;  // longest first, as in forward
    const int sequence = head_of_all / sizes.heads, head = head_of_all % sizes.heads;
    const int query_stride = sizes.query_stride(), key_stride = sizes.key_stride();
    const std::int64_t query_at = sizes.query_head(sequence, head) + static_cast<std::int64_t>(first) * query_stride;
    const T* k_head = k + sizes.key_head(sequence, head / sizes.group);
    const T* v_head = v + sizes.key_head(sequence, head / sizes.group);
    const int rows = min(Tile::queries, sizes.query_length - first);
    const int key_tiles = (first + rows + Tile::keys - 1) / Tile::keys;
    const auto load_keys = [&](int tile) {
        const int key = tile * Tile::keys, valid = sizes.key_length - key;
        const std::int64_t at = static_cast<std::int64_t>(key) * key_stride;
        load_rows<W, Tile::keys, Tile::threads>(keys + tile % 2 * buffer, k_head + at, key_stride, valid, sizes);
        load_rows<W, Tile::keys, Tile::threads>(values + tile % 2 * buffer, v_head + at, key_stride, valid, sizes);
        copy_async_commit();
    };
    load_rows<W, Tile::queries, Tile::threads>(queries, q + query_at, query_stride, rows, sizes);
    load_rows<W, Tile::queries, Tile::threads>(gradients, dy + query_at, query_stride, rows, sizes);
    load_keys(0);

    const int warp_row = static_cast<int>(threadIdx.x) / warp_width * Tile::warp_rows, warp_first = first + warp_row;
    T* warp_queries = queries + warp_row * W::stride;
    T* warp_gradients = gradients + warp_row * W::stride;
    for (int row = static_cast<int>(threadIdx.x); row < Tile::queries; row += Tile::threads) {
        const std::int64_t place = sizes.row_head(sequence, head) + first + row;
        levels[row] = row < rows ? log_sum_exp[place] * log2_of_e : INFINITY;
        deltas[row] = row < rows ? delta[place] : 0.0f;
    }
    if (threadIdx.x == 0) *output_at = query_at;
    Sums<W::width / 8> sums[M];
#pragma unroll
    for (int m = 0; m < M; ++m) sums[m].clear();
#pragma unroll 1
    for (int tile = 0; tile < key_tiles; ++tile) {
        copy_async_wait<0>();
        __syncthreads();  // this tile has arrived, and the next one's buffer is free
        if (tile + 1 < key_tiles) load_keys(tile + 1);
        const int key = tile * Tile::keys;
        if (key >= warp_first + Tile::warp_rows) continue;  // the warp's queries all precede these keys
        const T* tile_keys = keys + tile % 2 * buffer;

        Sums<N> weights[M], slopes[M];
        Left<T, Tile::keys / 16> left[M];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            weights[m].clear();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float along = deltas[warp_row + 16 * m + Sums<1>::row(i)];
#pragma unroll
                for (int n = 0; n < N; ++n) slopes[m].at[n][i] = -along;  // saves registers
            }
        }
        multiply_rows<W>(weights, warp_queries, tile_keys);
        multiply_rows<W>(slopes, warp_gradients, values + tile % 2 * buffer);
        const bool diagonal = key + Tile::keys - 1 > warp_first;
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float level = levels[warp_row + 16 * m + Sums<1>::row(i)];
#pragma unroll
                for (int n = 0; n < N; ++n)
                    slopes[m].at[n][i] *= fast_exp2(fmaf(weights[m].at[n][i], sizes.scale_log2, -level));
            }
            if (diagonal)
#pragma unroll
                for (int n = 0; n < N; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (key + Sums<1>::column(n, i) > warp_first + 16 * m + Sums<1>::row(i)) slopes[m].at[n][i] = 0;
            to_left(left[m], slopes[m]);
        }
        multiply<Right::rows_of_k>(sums, left, tile_keys, W::stride);
    }
    store_warp_sums<W>(
        dq + *output_at + static_cast<std::int64_t>(warp_row) * query_stride, warp_queries, sums,
        [&](int, int) { return sizes.scale; }, query_stride, rows - warp_row, sizes);
}

}  // namespace

void CudaBackend::attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                     Tensor log_sum_exp, const AttentionShape& shape) {
    AttentionSizes sizes = attention_sizes(shape, q, k, v, y, log_sum_exp);
    LOCKSTEP_ASSERT(shape.query_length == shape.key_length);
    LOCKSTEP_ASSERT(dq.count() == q.count() && dy.count() == q.count() && dk.count() == k.count() &&
                    dv.count() == k.count());
    LOCKSTEP_ASSERT(dq.type() == q.type() && dy.type() == q.type() && dk.type() == q.type() && dv.type() == q.type());
    for (const Tensor& tensor : {dq, dk, dv, dy, q, k, v, y}) sizes.vectors = sizes.vectors && aligned_16(tensor);
    const std::int64_t rows = shape.batch * shape.query_length * shape.heads;
    float* delta = scratch_of<float>(rows);
    dispatch(q.type(), [&](auto element) {
        using T = decltype(element);
        launch({"attention_delta", grid_of(blocks_for(rows, delta_threads / delta_lanes)), delta_threads, 0, stream()},
               attention_delta_kernel<T>, delta, elements<T>(dy), elements<T>(y), rows, sizes);
        with_head_width<T>(sizes, [&](auto head_width) {
            using W = decltype(head_width);
            using Keys = KeyGradientTile<W>;
            using Queries = QueryGradientTile<W>;
            const auto key_gradients = [&](auto kernel) {
                launch({"attention_key_gradient",
                        grid_of(shape.batch * shape.key_heads * ((shape.key_length + Keys::keys - 1) / Keys::keys)),
                        Keys::threads, Keys::shared_bytes, stream()},
                       kernel, elements<T>(dk), elements<T>(dv), elements<T>(dy), elements<T>(q), elements<T>(k),
                       elements<T>(v), log_sum_exp.fp32(), delta, sizes);
            };
            if constexpr (Keys::at_once) {
                key_gradients(attention_key_gradient_kernel<W, true, true>);
            } else {
                key_gradients(attention_key_gradient_kernel<W, true, false>);
                key_gradients(attention_key_gradient_kernel<W, false, true>);
            }
            launch(
                {"attention_query_gradient",
                 grid_of(shape.batch * shape.heads * ((shape.query_length + Queries::queries - 1) / Queries::queries)),
                 Queries::threads, Queries::shared_bytes, stream()},
                attention_query_gradient_kernel<W>, elements<T>(dq), elements<T>(dy), elements<T>(q), elements<T>(k),
                elements<T>(v), log_sum_exp.fp32(), delta, sizes);
        });
    });
}

}  // namespace lockstep::kernels::cuda
