// Causal attention without storing the score matrix, after FlashAttention-2 (Dao 2023): a block keeps a tile of queries
// and walks over the tiles of keys they see, with a running maximum and sum per row.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class W>
struct ForwardTile {
    // 32 rows per warp: see multiply in tile.hpp. A tile's scores and the output's sums are in registers, and at width
    // 64 the queries too: 246, 255 and 253 registers at widths 64, 96 and 128 (48 keys spill at 128).
    static constexpr int warps = 4, threads = warps * warp_width, blocks_of_16 = W::exact ? 2 : 1;
    static constexpr int warp_rows = 16 * blocks_of_16, queries = warps * warp_rows;
    static constexpr int keys = W::exact && W::width < 128 ? 64 : (W::row_bytes > 600 ? 16 : 32);
    static constexpr bool keeps_queries = W::exact && W::width == 64;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(queries + 4 * keys) * static_cast<std::size_t>(W::row_bytes);
};

// Turns a tile of scores into weights, in place: exp2(score · scale - maximum) with the row's running maximum; rescales
// output and sums to it. Maxima are in units of log2; a lane's sums cover its own columns only.
template <int N, int width_blocks>
__device__ inline void soften(Sums<N>& scores, Sums<width_blocks>& output, float (&maximum)[2], float (&sum)[2],
                              float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = scores.at[0][2 * half];
#pragma unroll
        for (int n = 0; n < N; ++n) highest = fmaxf(highest, fmaxf(scores.at[n][2 * half], scores.at[n][2 * half + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(all_lanes, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(all_lanes, highest, 2));
        const float raised = fmaxf(maximum[half], highest * scale_log2);
        const float correction = fast_exp2(maximum[half] - raised);  // 0 in the first tile
        maximum[half] = raised;
        sum[half] *= correction;
#pragma unroll
        for (int n = 0; n < width_blocks; ++n) {
            output.at[n][2 * half] *= correction;
            output.at[n][2 * half + 1] *= correction;
        }
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores.at[n][i] = fast_exp2(fmaf(scores.at[n][i], scale_log2, -raised));
                sum[half] += scores.at[n][i];
            }
    }
}

template <class W>
__global__ void __launch_bounds__(ForwardTile<W>::threads)
    attention_forward_kernel(typename W::T* y, float* log_sum_exp, const typename W::T* q, const typename W::T* k,
                             const typename W::T* v, AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = ForwardTile<W>;
    constexpr int M = Tile::blocks_of_16, buffer = Tile::keys * W::stride;
    T* queries = shared_memory<T>();
    T* keys = queries + Tile::queries * W::stride;  // double-buffered, followed by the values
    T* values = keys + 2 * buffer;

    // Last queries of a head first: they see the most keys.
    const int tiles = (sizes.query_length + Tile::queries - 1) / Tile::queries;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = (tiles - 1 - block % tiles) * Tile::queries;
    const int sequence = head_of_all / sizes.heads, head = head_of_all % sizes.heads;
    const int query_stride = sizes.query_stride(), key_stride = sizes.key_stride();
    const std::int64_t query_at = sizes.query_head(sequence, head) + static_cast<std::int64_t>(first) * query_stride;
    const T* k_head = k + sizes.key_head(sequence, head / sizes.group);
    const T* v_head = v + sizes.key_head(sequence, head / sizes.group);

    const int earlier = sizes.key_length - sizes.query_length;  // keys before the first query
    const int rows = min(Tile::queries, sizes.query_length - first);
    const int key_tiles = (first + rows + earlier + Tile::keys - 1) / Tile::keys;
    const auto load_keys = [&](int tile) {
        const int key = tile * Tile::keys, valid = sizes.key_length - key;
        const std::int64_t at = static_cast<std::int64_t>(key) * key_stride;
        load_rows<W, Tile::keys, Tile::threads>(keys + tile % 2 * buffer, k_head + at, key_stride, valid, sizes);
        load_rows<W, Tile::keys, Tile::threads>(values + tile % 2 * buffer, v_head + at, key_stride, valid, sizes);
        copy_async_commit();
    };

    const int warp_row = static_cast<int>(threadIdx.x) / warp_width * Tile::warp_rows;
    const int warp_first = first + warp_row + earlier;  // the last key visible to the warp's first query
    T* warp_queries = queries + warp_row * W::stride;
    load_rows<W, Tile::queries, Tile::threads>(queries, q + query_at, query_stride, rows, sizes);
    copy_async_commit();
    load_keys(0);
    Left<T, Tile::keeps_queries ? W::width / 16 : 1> kept[M];
    if constexpr (Tile::keeps_queries) {
        copy_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < M; ++m) load_left(kept[m], warp_queries + 16 * m * W::stride, W::stride);
    }

    Sums<W::width / 8> output[M];
    float maximum[M][2], sum[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        output[m].clear();
        maximum[m][0] = maximum[m][1] = -INFINITY;
        sum[m][0] = sum[m][1] = 0;
    }
#pragma unroll 1
    for (int tile = 0; tile < key_tiles; ++tile) {
        copy_async_wait<0>();
        __syncthreads();  // this tile has arrived, and the next one's buffer is free
        if (tile + 1 < key_tiles) load_keys(tile + 1);
        const int key = tile * Tile::keys;
        if (key >= warp_first + Tile::warp_rows) continue;  // the warp's queries all precede these keys
        Sums<Tile::keys / 8> scores[M];
        const T* tile_keys = keys + tile % 2 * buffer;
#pragma unroll
        for (int m = 0; m < M; ++m) scores[m].clear();
        if constexpr (Tile::keeps_queries)
            multiply<Right::rows_of_n>(scores, kept, tile_keys, W::stride);
        else
            multiply_rows<W>(scores, warp_queries, tile_keys);
        // The first tile has key 0, which all queries see: maxima are finite from there on.
        if (key + Tile::keys - 1 > warp_first)
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int n = 0; n < Tile::keys / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (key + Sums<1>::column(n, i) > warp_first + 16 * m + Sums<1>::row(i))
                            scores[m].at[n][i] = -INFINITY;
        Left<T, Tile::keys / 16> weights[M];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            soften(scores[m], output[m], maximum[m], sum[m], sizes.scale_log2);
            to_left(weights[m], scores[m]);
        }
        multiply<Right::rows_of_k>(output, weights, values + tile % 2 * buffer, W::stride);
    }

    float inverse[M][2];
    const int warp_rows = rows - warp_row;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = sum[m][half];
            total += __shfl_xor_sync(all_lanes, total, 1);
            total += __shfl_xor_sync(all_lanes, total, 2);
            inverse[m][half] = 1.0f / total;
            const int row = 16 * m + Sums<1>::row(2 * half);
            if (lane_index() % 4 == 0 && row < warp_rows)
                log_sum_exp[sizes.row_head(sequence, head) + first + warp_row + row] =
                    fmaf(maximum[m][half], log_of_2, logf(total));
        }
    store_warp_sums<W>(
        y + query_at + warp_row * query_stride, warp_queries, output, [&](int m, int i) { return inverse[m][i / 2]; },
        query_stride, warp_rows, sizes);
}

}  // namespace

void CudaBackend::attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                                    const AttentionShape& shape) {
    AttentionSizes sizes = attention_sizes(shape, q, k, v, y, log_sum_exp);
    sizes.vectors = sizes.vectors && aligned_16(q) && aligned_16(k) && aligned_16(v) && aligned_16(y);
    dispatch(q.type(), [&](auto element) {
        using T = decltype(element);
        with_head_width<T>(sizes, [&](auto head_width) {
            using W = decltype(head_width);
            using Tile = ForwardTile<W>;
            const std::int64_t tiles = (shape.query_length + Tile::queries - 1) / Tile::queries;
            launch({"attention_forward", grid_of(shape.batch * shape.heads * tiles), Tile::threads, Tile::shared_bytes,
                    stream()},
                   attention_forward_kernel<W>, elements<T>(y), log_sum_exp.fp32(), elements<T>(q), elements<T>(k),
                   elements<T>(v), sizes);
        });
    });
}

}  // namespace lockstep::kernels::cuda
