// Causal attention without storing the score matrix, after FlashAttention-2 (Dao 2023): a block keeps a tile of queries
// and walks over the tiles of keys they see, with a running level and sum per row.
//
// A row's weights are exp2(score · scale - level). The level is the row's maximum when it was last looked for, and that
// is done only when weights have become large: first in the first tile, and rarely after it. Any level near the maximum
// is as good, since the output is divided by the sum of the weights.
#include "kernels/cuda/attention_tile.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class W>
struct ForwardTile {
    // 32 rows per warp use each load of a right operand twice: with 16, shared memory limits an H100's tensor cores. A
    // tile's scores and the output's sums are in registers, and at width 64 the queries too, which takes nearly all of
    // them (docs/kernels/attention.md); 48 keys spill at width 128.
    static constexpr int warps = 4, threads = warps * warp_width, blocks_of_16 = W::exact ? 2 : 1;
    static constexpr int warp_rows = 16 * blocks_of_16, queries = warps * warp_rows;
    static constexpr int keys = W::exact && W::width < 128 ? 64 : (W::row_bytes > 600 ? 16 : 32);
    static constexpr bool keeps_queries = W::exact && W::width == 64;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(queries + 4 * keys) * static_cast<std::size_t>(W::row_bytes);
};

// Below all scores, and finite: a row of which a tile's keys are all hidden keeps this level.
constexpr float lowest_level = -1e30f;

// A lane's sum of weights of one row in one tile beyond which the row's level is raised. fp16 holds 65504.
constexpr float highest_sum = 256;

// Raises the levels of the rows of which a lane's sum was too high to the scores' maximum, and rescales outputs and
// sums to them. Levels are in units of log2.
template <int N, int width_blocks>
__device__ inline void raise_levels(const Sums<N>& scores, Sums<width_blocks>& output, float (&level)[2],
                                    float (&sum)[2], const float (&tile_sum)[2], float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = scores.at[0][2 * half], most = tile_sum[half];
#pragma unroll
        for (int n = 0; n < N; ++n) highest = fmaxf(highest, fmaxf(scores.at[n][2 * half], scores.at[n][2 * half + 1]));
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2) {
            highest = fmaxf(highest, __shfl_xor_sync(all_lanes, highest, distance));
            most = fmaxf(most, __shfl_xor_sync(all_lanes, most, distance));
        }
        // A row's level must not depend on the other rows of its warp.
        const float raised = most > highest_sum ? fmaxf(level[half], highest * scale_log2) : level[half];
        const float correction = fast_exp2(level[half] - raised);  // 0 in the first tile
        level[half] = raised;
        sum[half] *= correction;
#pragma unroll
        for (int n = 0; n < width_blocks; ++n) {
            output.at[n][2 * half] *= correction;
            output.at[n][2 * half + 1] *= correction;
        }
    }
}

// Turns a tile of scores into weights, in place, with their sums over this lane's columns.
template <int N>
__device__ inline void soften(Sums<N>& scores, const float (&level)[2], float (&tile_sum)[2], float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores.at[n][i] = fast_exp2(fmaf(scores.at[n][i], scale_log2, -level[half]));
                tile_sum[half] = n == 0 && i == 2 * half ? scores.at[n][i] : tile_sum[half] + scores.at[n][i];
            }
}

// The general kernels ask for one block a multiprocessor, or the compiler limits registers and spills; the tuned
// kernels do not spill without it.
template <class W, bool bounded>
__global__ void __launch_bounds__(ForwardTile<W>::threads, W::exact ? 0 : 1)
    attention_forward_kernel(typename W::T* y, float* log_sum_exp, const typename W::T* q, const typename W::T* k,
                             const typename W::T* v, AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = ForwardTile<W>;
    constexpr int M = Tile::blocks_of_16, N = Tile::keys / 8, buffer = Tile::keys * W::row_bytes;
    T* queries = shared_memory<T>();
    T* keys = queries + Tile::queries * W::stride;  // double-buffered, followed by the values
    T* values = keys + 2 * Tile::keys * W::stride;

    // Last queries of a head first: they see the most keys.
    const int group_rows = sizes.query_length * sizes.group;
    const int tiles = (group_rows + Tile::queries - 1) / Tile::queries;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = (tiles - 1 - block % tiles) * Tile::queries, rows = min(Tile::queries, group_rows - first);
    const int sequence = head_of_all / sizes.key_heads(), key_head = head_of_all % sizes.key_heads();
    const int earlier = sizes.query_position, last_key = sizes.key_length - 1;
    const int key_tiles = min((first + rows - 1) / sizes.group + earlier, last_key) / Tile::keys + 1;
    const int first_tile = bounded ? min(sizes.first_key(sequence, first / sizes.group), last_key) / Tile::keys : 0;
    const int first_key = first_tile * Tile::keys;

    const int warp_row = static_cast<int>(threadIdx.x) / warp_width * Tile::warp_rows;
    // The last keys visible to the warp's first and last row.
    const int warp_first = min((first + warp_row) / sizes.group + earlier, last_key);
    const int warp_last = (first + warp_row + Tile::warp_rows - 1) / sizes.group + earlier;
    // With bounds: the first keys visible to them.
    const int warp_begin = bounded ? sizes.first_key(sequence, (first + warp_row) / sizes.group) : 0;
    const int warp_late = bounded ? sizes.first_key(sequence, warp_last - earlier) : 0;
    T* warp_queries = queries + warp_row * W::stride;
    const int head = key_head * sizes.group;  // the group's first
    const RowStrides& strides = sizes.strides;
    load_group_rows<W, Tile::queries, Tile::threads>(
        queries, {q + sizes.query_head(sequence, head, strides.q), strides.q}, first, rows, sizes);
    copy_async_commit();
    const auto key_rows_from = [&](const T* of, int stride) {
        return Rows<T>{of + sizes.key_head(sequence, key_head, stride) + static_cast<std::int64_t>(first_key) * stride,
                       stride};
    };
    PairLoader<W, Tile::keys, Tile::threads, 2 * buffer> loader(
        keys, key_rows_from(k, strides.k), key_rows_from(v, strides.v), sizes.key_length - first_key, sizes.width);
    loader.load(0);
    copy_async_commit();
    const OperandPlace<W> left = left_place<W>(warp_queries), key_rows = right_place<W, Right::rows_of_n>(keys),
                          value_rows = right_place<W, Right::rows_of_k>(values);
    Left<T, Tile::keeps_queries ? W::width / 16 : 1> kept[M];
    if constexpr (Tile::keeps_queries) {
        copy_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < M; ++m) load_left(kept[m], warp_queries + 16 * m * W::stride, W::stride);
    }

    Sums<W::width / 8> output[M];
    float level[M][2], sum[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        output[m].clear();
        level[m][0] = level[m][1] = bounded ? lowest_level : -INFINITY;
        sum[m][0] = sum[m][1] = 0;
    }
    const float score_scale = bounded ? 1.0f : sizes.scale_log2;
    int at = 0;  // bytes from the first to this tile's buffer
#pragma unroll 1
    for (int tile = first_tile; tile < key_tiles; ++tile, at = buffer - at) {
        copy_async_wait<0>();
        __syncthreads();  // this tile has arrived, and the next one's buffer is free
        if (tile + 1 < key_tiles) {
            loader.load(buffer - at);
            copy_async_commit();
        }
        const int key = tile * Tile::keys;
        if (key > warp_last) continue;                            // the warp's queries all precede these keys
        if (bounded && key + Tile::keys <= warp_begin) continue;  // and these are before their first keys
        Sums<N> scores[M];
        float tile_sum[M][2];
#pragma unroll
        for (int m = 0; m < M; ++m) tile_sum[m][0] = tile_sum[m][1] = INFINITY;
        bool levels = tile > first_tile;
#pragma unroll 1
        while (true) {  // once, unless weights are too large
            if constexpr (Tile::keeps_queries)
                multiply_tile<W, Right::rows_of_n>(scores, kept, key_rows + at, FromZero{});
            else
                multiply_rows<W, 0, 0>(scores, left, key_rows + at, FromZero{});
            if constexpr (bounded)
#pragma unroll
                for (int m = 0; m < M; ++m) bound_scores<T>(scores[m], sizes.bounds);
            // Without bounds the first tile has key 0, which all queries see: maxima are finite from there on. With
            // them, a row's level stays the lowest until its first key, whose weight is infinite and raises it.
            if (key + Tile::keys - 1 > warp_first || (bounded && key < warp_late)) {
                int tokens[2 * M];
                tokens_of_lane(tokens, first + warp_row, sizes.group);
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int token = tokens[2 * m + half], column = key + 2 * (lane_index() % 4);
                        const int seen = min(token + earlier, last_key) - column;
                        const int begin = bounded ? sizes.first_key(sequence, token) - column : 0;
#pragma unroll
                        for (int n = 0; n < N; ++n)
#pragma unroll
                            for (int i = 0; i < 2; ++i)
                                if (8 * n + i > seen || (bounded && 8 * n + i < begin))
                                    scores[m].at[n][2 * half + i] = -INFINITY;
                    }
            }
            if (!levels)
#pragma unroll
                for (int m = 0; m < M; ++m)
                    raise_levels(scores[m], output[m], level[m], sum[m], tile_sum[m], score_scale);
            float most = 0;
#pragma unroll
            for (int m = 0; m < M; ++m) {
                soften(scores[m], level[m], tile_sum[m], score_scale);
                most = fmaxf(most, fmaxf(tile_sum[m][0], tile_sum[m][1]));
            }
            if (!levels || !__any_sync(all_lanes, most > highest_sum)) break;
            levels = false;
        }
        Left<T, Tile::keys / 16> weights[M];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            sum[m][0] += tile_sum[m][0];
            sum[m][1] += tile_sum[m][1];
            to_left(weights[m], scores[m]);
        }
        multiply_tile<W, Right::rows_of_k>(output, weights, value_rows + at);
    }

    // Lane t of the four that share rows writes the t-th of these.
    const int warp_rows = rows - warp_row, lane_row = lane_index() / 4 + 8 * (lane_index() % 4);
    float inverse[M][2], row_total = 1, row_level = 0;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = lanes_sum<4>(sum[m][half]);
            inverse[m][half] = bounded && total == 0 ? 0.0f : 1.0f / total;  // 0: it sees no key
            if (lane_index() % 4 == 2 * m + half) {
                row_total = total;
                row_level = level[m][half];
            }
        }
    if (lane_row < min(warp_rows, Tile::warp_rows)) {
        const GroupRow row(first + warp_row + lane_row, sizes.group);
        const std::int64_t row_head = static_cast<std::int64_t>(sequence) * sizes.heads + head + row.head;
        log_sum_exp[row_head * sizes.query_length + row.token] = fmaf(row_level, log_of_2, logf(row_total));
    }
    const int stride = sizes.output_stride();
    T* const to = y + sizes.query_head(sequence, head, stride);
    store_warp_sums<W>(
        warp_queries, output, [&](int m, int i) { return inverse[m][i / 2]; }, warp_rows, sizes.width,
        [&](int row, int step, auto&& body) { walk_rows(to, stride, first + warp_row + row, step, sizes, body); });
}

}  // namespace

void CudaBackend::attention_forward(Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                                    const AttentionShape& shape) {
    const AttentionSizes sizes = attention_sizes(shape, q, k, v, y, log_sum_exp);
    const bool aligned = aligned_rows(q, sizes.strides.q) && aligned_rows(k, sizes.strides.k) &&
                         aligned_rows(v, sizes.strides.v) && aligned_rows(y, shape.heads * shape.head_width);
    dispatch(q.type(), [&](auto element) {
        using T = decltype(element);
        with_head_width<T>(sizes, aligned, [&](auto head_width) {
            using W = decltype(head_width);
            using Tile = ForwardTile<W>;
            const std::int64_t rows = shape.query_length * sizes.group;
            const std::int64_t tiles = (rows + Tile::queries - 1) / Tile::queries;
            with_bounds(shape, [&](auto bounded) {
                launch({"attention_forward", grid_of(shape.batch * shape.key_heads * tiles), Tile::threads,
                        Tile::shared_bytes, stream()},
                       attention_forward_kernel<W, bounded()>, elements<T>(y), log_sum_exp.fp32(),
                       strided_elements<T>(q), strided_elements<T>(k), strided_elements<T>(v), sizes);
            });
        });
    });
}

}  // namespace lockstep::kernels::cuda
