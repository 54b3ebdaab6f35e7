// Backward of causal attention, after FlashAttention-2 (Dao 2023): weights are recomputed from log_sum_exp. Gradients
// of keys and values, and those of queries, come from separate kernels, which costs two matrix products in addition to
// five but needs no atomics: every sum has one owner and one order.
//
// With P the weights, P[i,j] = exp(scale q_i·k_j - log_sum_exp_i), and delta_i = dy_i·y_i:
// dV = Pᵀ dY, dS = P ⊙ (dY Vᵀ - delta), dQ = scale dS K, dK = scale dSᵀ Q. With a cap of the scores S, dS gets the
// factor 1 - (S / cap)².
#include "kernels/cuda/attention_tile.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

// What the products of a row of queries begin with, fp32: the rows of a head side by side, in whole tiles. Rows beyond
// the sequence get weight 0.
struct RowTerms {
    float* levels;  // [B, H, padded]: -log_sum_exp in units of log2
    float* deltas;  // [B, H, padded]: -delta
    int padded;     // queries, rounded up to row_multiple
};
constexpr int row_multiple = 32;

// Each octet of a block's lanes takes terms_each queries of one head, row_multiple apart.
constexpr int terms_threads = 256, terms_lanes = 8, terms_each = 4;
constexpr int terms_rows = terms_threads / terms_lanes * terms_each;
static_assert(terms_threads / terms_lanes == row_multiple);

// This lane's part of the product of two rows of a head.
template <class T, bool vectors>
__device__ inline float row_product(const T* left, const T* right, int lane, int width) {
    float sum = 0;
    if constexpr (!vectors) {
#pragma unroll 1
        for (int c = lane; c < width; c += terms_lanes) sum = fmaf(to_float(left[c]), to_float(right[c]), sum);
    } else {
        constexpr int words = 4;
        using Element = std::conditional_t<sizeof(T) == 2, std::uint32_t, T>;  // of 16 bits in pairs
#pragma unroll 1
        for (int c = lane * Vector16<T>::count; c < width; c += terms_lanes * Vector16<T>::count) {
            const auto a = load_pack<words>(reinterpret_cast<const Element*>(left + c));
            const auto b = load_pack<words>(reinterpret_cast<const Element*>(right + c));
#pragma unroll
            for (int i = 0; i < words; ++i)
                if constexpr (sizeof(T) == 2) {
                    sum = fmaf(unpack_low<T>(a.at[i]), unpack_low<T>(b.at[i]), sum);
                    sum = fmaf(unpack_high<T>(a.at[i]), unpack_high<T>(b.at[i]), sum);
                } else {
                    sum = fmaf(a.at[i], b.at[i], sum);
                }
        }
    }
    return sum;
}

template <class T, bool vectors>
__global__ void __launch_bounds__(terms_threads)
    attention_row_terms_kernel(RowTerms terms, const T* dy, const T* y, const float* log_sum_exp,
                               AttentionSizes sizes) {
    const int lane = static_cast<int>(threadIdx.x) % terms_lanes;
    const int block = static_cast<int>(blockIdx.x), blocks = (terms.padded + terms_rows - 1) / terms_rows;
    const int head_of_all = block / blocks, sequence = head_of_all / sizes.heads;
    const int first = block % blocks * terms_rows + static_cast<int>(threadIdx.x) / terms_lanes;
    const int stride = sizes.output_stride();
    std::int64_t at =
        sizes.query_head(sequence, head_of_all % sizes.heads, stride) + static_cast<std::int64_t>(first) * stride;
    float sums[terms_each];
#pragma unroll
    for (int row = 0; row < terms_each; ++row) {
        sums[row] = first + row * row_multiple < sizes.query_length
                        ? row_product<T, vectors>(dy + at, y + at, lane, sizes.width)
                        : 0.0f;
        at += static_cast<std::int64_t>(row_multiple) * stride;
    }
    // Lanes that are 4 apart share out the rows, then those that are 2 apart: row lane / 2 ends in this lane.
    static_assert(terms_each == 4 && terms_lanes == 8);
    const bool upper = lane & 4, odd = lane & 2;
    float mine = upper ? sums[2] : sums[0], next = upper ? sums[3] : sums[1];
    mine += __shfl_xor_sync(all_lanes, upper ? sums[0] : sums[2], 4);
    next += __shfl_xor_sync(all_lanes, upper ? sums[1] : sums[3], 4);
    float sum = (odd ? next : mine) + __shfl_xor_sync(all_lanes, odd ? mine : next, 2);
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    const int query = first + lane / 2 * row_multiple;
    if (lane % 2 != 0 || query >= terms.padded) return;
    const std::int64_t place = static_cast<std::int64_t>(head_of_all) * terms.padded + query;
    terms.deltas[place] = -sum;
    const float level =
        query < sizes.query_length
            ? -log2_of_e * log_sum_exp[static_cast<std::int64_t>(head_of_all) * sizes.query_length + query]
            : INFINITY;
    terms.levels[place] = level == INFINITY ? -INFINITY : level;  // a query without keys, like one there is none of
}

template <class W>
struct KeyGradientTile {
    static constexpr int warps = W::row_bytes > 600 ? 2 : 4, threads = warps * warp_width;
    static constexpr int blocks_of_16 = W::exact && W::width == 64 ? 2 : 1, warp_rows = 16 * blocks_of_16;
    static constexpr int keys = warps * warp_rows, queries = W::row_bytes > 600 ? 16 : 32;
    static_assert(row_multiple % queries == 0);
    // Registers hold both gradients of a tile up to width 128; beyond, each has its own pass.
    static constexpr bool at_once = W::width <= 128;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(2 * keys + 4 * queries) * static_cast<std::size_t>(W::row_bytes) +
        4 * queries * sizeof(float);
};

// A block owns a tile of keys of one key head and walks over the queries that see it, head by head of its group.
// Everything is transposed: rows are keys, columns are queries, so that weights pass from one product to the next in
// registers.
template <class W, bool bounded, bool makes_dk, bool makes_dv>
__global__ void __launch_bounds__(KeyGradientTile<W>::threads, 1)
    attention_key_gradient_kernel(typename W::T* dk, typename W::T* dv, const typename W::T* dy, const typename W::T* q,
                                  const typename W::T* k, const typename W::T* v, RowTerms terms,
                                  AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = KeyGradientTile<W>;
    constexpr int M = Tile::blocks_of_16, N = Tile::queries / 8;
    constexpr int keys_bytes = Tile::keys * W::row_bytes, queries_bytes = Tile::queries * W::row_bytes;
    T* keys = shared_memory<T>();
    T* values = keys + Tile::keys * W::stride;
    // Two buffers of queries, the output's gradients, [levels, deltas][queries].
    T* queries = values + Tile::keys * W::stride;
    float* rows = reinterpret_cast<float*>(queries + 2 * Tile::queries * W::stride);
    constexpr int buffer = 2 * queries_bytes + 2 * Tile::queries * static_cast<int>(sizeof(float));

    const int tiles = (sizes.key_length + Tile::keys - 1) / Tile::keys;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = block % tiles * Tile::keys;  // most queries see the first keys: start with them
    const int sequence = head_of_all / sizes.key_heads(), key_head = head_of_all % sizes.key_heads();
    const int head = key_head * sizes.group, valid_keys = sizes.key_length - first;
    const RowStrides& strides = sizes.strides;
    // The block's keys and the first queries that see them.
    const auto key_rows = [&](const T* of, int stride) {
        return Rows<T>{of + sizes.key_head(sequence, key_head, stride) + static_cast<std::int64_t>(first) * stride,
                       stride};
    };
    PairLoader<W, Tile::keys, Tile::threads, keys_bytes>(keys, key_rows(k, strides.k), key_rows(v, strides.v),
                                                         valid_keys, sizes.width)
        .load(0);

    const int first_query = max(first - sizes.query_position, 0) / Tile::queries * Tile::queries;
    int end_query = sizes.query_length;  // behind the last one that sees a key of the block
    if constexpr (bounded)
        end_query = min(
            end_query, max(sizes.end_of_queries(sequence, first + Tile::keys - 1) - sizes.query_position, first_query));
    const int query_tiles = (end_query - first_query + Tile::queries - 1) / Tile::queries;
    const int thread = static_cast<int>(threadIdx.x);
    const auto query_rows = [&](const T* of, int stride) {
        return Rows<T>{of + sizes.query_head(sequence, head, stride) + static_cast<std::int64_t>(first_query) * stride,
                       stride};
    };
    PairLoader<W, Tile::queries, Tile::threads, queries_bytes> loader(queries, query_rows(q, strides.q),
                                                                      query_rows(dy, sizes.output_stride()),
                                                                      sizes.query_length - first_query, sizes.width);
    // Four levels or deltas each are copied by the first threads.
    constexpr int row_copies = Tile::queries / 4;
    const float* terms_from = (thread < row_copies ? terms.levels : terms.deltas) +
                              (static_cast<std::int64_t>(sequence) * sizes.heads + head) * terms.padded + first_query +
                              thread % row_copies * 4;
    int to_load = query_tiles;  // of this head
    const SharedPlace terms_to = shared_place(rows + 4 * thread);
    const auto load_queries = [&](int at) {
        loader.load(at);
        if (thread < 2 * row_copies) copy_async_16<0>(terms_to + at, terms_from);
        copy_async_commit();
        terms_from += Tile::queries;
        if (--to_load == 0) {  // on to the next head of the group
            to_load = query_tiles;
            loader.back(query_tiles, sizes.width);
            terms_from += terms.padded - query_tiles * Tile::queries;
        }
    };
    if (bounded && query_tiles == 0) {
        copy_async_commit();
        copy_async_wait<0>();  // of the keys: what is stored takes their place
        __syncthreads();
    } else {
        load_queries(0);
    }

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
    const OperandPlace<W> left_keys = left_place<W>(warp_keys),
                          query_columns = right_place<W, Right::rows_of_n>(queries),
                          query_sums = right_place<W, Right::rows_of_k>(queries);
    const unsigned char* lane_rows = reinterpret_cast<const unsigned char*>(rows + Sums<1>::column(0, 0));
    // With bounds: behind the positions of the queries that see the warp's first key, and its last.
    const int first_end = bounded ? sizes.end_of_queries(sequence, warp_first) : 0;
    const int last_end = bounded ? sizes.end_of_queries(sequence, warp_first + Tile::warp_rows - 1) : 0;
    // Bytes from the first to the step's buffer, and the position of its first query, counted from the first key.
    int at = 0, query = first_query + sizes.query_position;
#pragma unroll 1
    for (int steps = query_tiles * sizes.group; steps > 0; --steps) {
        copy_async_wait<0>();
        __syncthreads();  // this tile has arrived, and the next one's buffer is free
        const int here = at, step_query = query;
        at = buffer - at;
        if (steps > 1) load_queries(at);
        query += Tile::queries;
        if (query >= end_query + sizes.query_position) query = first_query + sizes.query_position;
        if (step_query + Tile::queries <= warp_first) continue;  // all precede the warp's keys
        if (bounded && step_query >= last_end) continue;         // all too late

        // Scores, which become weights: at once, or with bounds, where a score's slope is wanted too, for each product.
        Sums<N> scores[M];
        Left<T, Tile::queries / 16> left[M];
        const float* const step_rows = reinterpret_cast<const float*>(lane_rows + here);
        multiply_rows<W, 0, 0>(scores, left_keys, query_columns + here, FromZero{});
        const auto soften = [&](Sums<N>(&sums)[M]) {
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const Pack<float, 2> level = load_pack<2>(step_rows + 8 * n);
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        sums[m].at[n][i] =
                            fast_exp2(fmaf(sums[m].at[n][i], bounded ? 1.0f : sizes.scale_log2, level.at[i % 2]));
            }
        };
        if constexpr (bounded)
#pragma unroll
            for (int m = 0; m < M; ++m) bound_scores<T>(scores[m], sizes.bounds);
        else
            soften(scores);
        const bool late = bounded && step_query + Tile::queries > first_end;
        if (step_query < warp_first + Tile::warp_rows - 1 || late) {
            const int column = step_query + 2 * (lane_index() % 4), key = warp_first + lane_index() / 4;
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = key + 16 * m + 8 * half, begin = row - column;
                    const int end = bounded ? sizes.end_of_queries(sequence, row) - column : 0;
#pragma unroll
                    for (int n = 0; n < N; ++n)
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            if (8 * n + i < begin || (bounded && 8 * n + i >= end))
                                scores[m].at[n][2 * half + i] = bounded ? -INFINITY : 0;
                }
        }
        if constexpr (makes_dv) {
            if constexpr (bounded) {
                Sums<N> weights[M];
#pragma unroll
                for (int m = 0; m < M; ++m) weights[m] = scores[m];
                soften(weights);
#pragma unroll
                for (int m = 0; m < M; ++m) to_left(left[m], weights[m]);
            } else {
#pragma unroll
                for (int m = 0; m < M; ++m) to_left(left[m], scores[m]);
            }
            multiply_tile<W, Right::rows_of_k, queries_bytes>(value_sums, left, query_sums + here);
        }
        if constexpr (makes_dk) {
            Sums<N> slopes[M];
            Pack<float, 2> deltas[N];
#pragma unroll
            for (int n = 0; n < N; ++n) deltas[n] = load_pack<2>(step_rows + Tile::queries + 8 * n);
            multiply_rows<W, keys_bytes, queries_bytes>(slopes, left_keys, query_columns + here,
                                                        [&](int, int n, int i) { return deltas[n].at[i % 2]; });
            if constexpr (bounded) {
#pragma unroll
                for (int m = 0; m < M; ++m)
#pragma unroll
                    for (int n = 0; n < N; ++n)
#pragma unroll
                        for (int i = 0; i < 4; ++i) slopes[m].at[n][i] *= sizes.bounds.slope(scores[m].at[n][i]);
                soften(scores);
            }
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int n = 0; n < N; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) slopes[m].at[n][i] *= scores[m].at[n][i];
                to_left(left[m], slopes[m]);
            }
            multiply_tile<W, Right::rows_of_k>(key_sums, left, query_sums + here);
        }
    }

    // Where the warp's rows of a gradient go.
    const auto rows_of = [&](T* gradient, int stride) {
        T* const to =
            gradient + sizes.key_head(sequence, key_head, stride) + static_cast<std::int64_t>(warp_first) * stride;
        return [=](int row, int step, auto&& body) { body(RowWalk<T>(to + row * stride, stride, step)); };
    };
    if constexpr (makes_dk)
        store_warp_sums<W>(
            warp_keys, key_sums, [&](int, int) { return sizes.scale; }, valid_keys - warp_row, sizes.width,
            rows_of(dk, sizes.strides.dk));
    if constexpr (makes_dv)
        store_warp_sums<W>(
            warp_values, value_sums, [](int, int) { return 1.0f; }, valid_keys - warp_row, sizes.width,
            rows_of(dv, sizes.strides.dv));
}

template <class W>
struct QueryGradientTile {
    static constexpr int warps = W::row_bytes > 600 ? 2 : 4, threads = warps * warp_width;
    static constexpr int blocks_of_16 = W::exact ? 2 : 1, warp_rows = 16 * blocks_of_16;
    static constexpr int queries = warps * warp_rows, keys = W::row_bytes > 600 ? 16 : 32;
    static constexpr std::size_t shared_bytes =
        static_cast<std::size_t>(2 * queries + 4 * keys) * static_cast<std::size_t>(W::row_bytes) +
        2 * queries * sizeof(float);
};

// A block owns a tile of queries of one group and walks over the keys they see.
template <class W, bool bounded>
__global__ void __launch_bounds__(QueryGradientTile<W>::threads, 1)
    attention_query_gradient_kernel(typename W::T* dq, const typename W::T* dy, const typename W::T* q,
                                    const typename W::T* k, const typename W::T* v, RowTerms terms,
                                    AttentionSizes sizes) {
    using T = typename W::T;
    using Tile = QueryGradientTile<W>;
    constexpr int M = Tile::blocks_of_16, N = Tile::keys / 8;
    constexpr int queries_bytes = Tile::queries * W::row_bytes, buffer = Tile::keys * W::row_bytes;
    T* queries = shared_memory<T>();
    T* gradients = queries + Tile::queries * W::stride;
    T* keys = gradients + Tile::queries * W::stride;  // double-buffered, followed by the values
    float* levels = reinterpret_cast<float*>(keys + 4 * Tile::keys * W::stride);  // of the block's rows
    float* deltas = levels + Tile::queries;

    const int group_rows = sizes.query_length * sizes.group;
    const int tiles = (group_rows + Tile::queries - 1) / Tile::queries;
    const int block = static_cast<int>(blockIdx.x), head_of_all = block / tiles;
    const int first = (tiles - 1 - block % tiles) * Tile::queries;  // longest first, as in forward
    const int rows = min(Tile::queries, group_rows - first);
    const int sequence = head_of_all / sizes.key_heads(), key_head = head_of_all % sizes.key_heads();
    const int head = key_head * sizes.group;
    const int earlier = sizes.query_position, last_key = sizes.key_length - 1;
    const int key_tiles = min((first + rows - 1) / sizes.group + earlier, last_key) / Tile::keys + 1;
    const int first_tile = bounded ? min(sizes.first_key(sequence, first / sizes.group), last_key) / Tile::keys : 0;
    const int first_key = first_tile * Tile::keys;
    const RowStrides& strides = sizes.strides;
    load_group_rows<W, Tile::queries, Tile::threads>(
        queries, {q + sizes.query_head(sequence, head, strides.q), strides.q}, first, rows, sizes);
    const int output_stride = sizes.output_stride();
    load_group_rows<W, Tile::queries, Tile::threads>(
        gradients, {dy + sizes.query_head(sequence, head, output_stride), output_stride}, first, rows, sizes);
    const auto key_rows_from = [&](const T* of, int stride) {
        return Rows<T>{of + sizes.key_head(sequence, key_head, stride) + static_cast<std::int64_t>(first_key) * stride,
                       stride};
    };
    PairLoader<W, Tile::keys, Tile::threads, 2 * buffer> loader(
        keys, key_rows_from(k, strides.k), key_rows_from(v, strides.v), sizes.key_length - first_key, sizes.width);
    loader.load(0);
    copy_async_commit();

    const int warp_row = static_cast<int>(threadIdx.x) / warp_width * Tile::warp_rows;
    // The last keys visible to the warp's first and last row.
    const int warp_first = min((first + warp_row) / sizes.group + earlier, last_key);
    const int warp_last = (first + warp_row + Tile::warp_rows - 1) / sizes.group + earlier;
    // With bounds: the first keys visible to them.
    const int warp_begin = bounded ? sizes.first_key(sequence, (first + warp_row) / sizes.group) : 0;
    const int warp_late = bounded ? sizes.first_key(sequence, warp_last - earlier) : 0;
    T* warp_queries = queries + warp_row * W::stride;
    for (int row = static_cast<int>(threadIdx.x); row < Tile::queries; row += Tile::threads) {
        const GroupRow place(first + row, sizes.group);
        const std::int64_t term =
            (static_cast<std::int64_t>(sequence) * sizes.heads + head + place.head) * terms.padded + place.token;
        levels[row] = row < rows ? terms.levels[term] : -INFINITY;
        deltas[row] = row < rows ? terms.deltas[term] : 0.0f;
    }
    Sums<W::width / 8> sums[M];
#pragma unroll
    for (int m = 0; m < M; ++m) sums[m].clear();
    const OperandPlace<W> left_queries = left_place<W>(warp_queries),
                          key_columns = right_place<W, Right::rows_of_n>(keys),
                          key_sums = right_place<W, Right::rows_of_k>(keys);
    const float* const lane_levels = levels + warp_row + Sums<1>::row(0);
    const float* const lane_deltas = deltas + warp_row + Sums<1>::row(0);
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

        Sums<N> weights[M], slopes[M];
        Left<T, Tile::keys / 16> left[M];
        const auto of_rows = [&](float(&values)[M][2], const float* lane_values) {  // not kept in registers
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) values[m][half] = lane_values[16 * m + 8 * half];
        };
        multiply_rows<W, 0, 0>(weights, left_queries, key_columns + at, FromZero{});
        float terms_of_rows[M][2];
        of_rows(terms_of_rows, lane_deltas);
        multiply_rows<W, queries_bytes, 2 * buffer>(slopes, left_queries, key_columns + at,
                                                    [&](int m, int, int i) { return terms_of_rows[m][i / 2]; });
        of_rows(terms_of_rows, lane_levels);
        if constexpr (bounded)
#pragma unroll
            for (int m = 0; m < M; ++m) bound_scores<T>(weights[m], sizes.bounds);
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if constexpr (bounded) slopes[m].at[n][i] *= sizes.bounds.slope(weights[m].at[n][i]);
                    slopes[m].at[n][i] *= fast_exp2(
                        fmaf(weights[m].at[n][i], bounded ? 1.0f : sizes.scale_log2, terms_of_rows[m][i / 2]));
                }
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
                            if (8 * n + i > seen || (bounded && 8 * n + i < begin)) slopes[m].at[n][2 * half + i] = 0;
                }
        }
#pragma unroll
        for (int m = 0; m < M; ++m) to_left(left[m], slopes[m]);
        multiply_tile<W, Right::rows_of_k>(sums, left, key_sums + at);
    }
    const int stride = sizes.strides.dq;
    T* const to = dq + sizes.query_head(sequence, head, stride);
    store_warp_sums<W>(
        warp_queries, sums, [&](int, int) { return sizes.scale; }, rows - warp_row, sizes.width,
        [&](int row, int step, auto&& body) { walk_rows(to, stride, first + warp_row + row, step, sizes, body); });
}

}  // namespace

void CudaBackend::attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y,
                                     Tensor log_sum_exp, const AttentionShape& shape) {
    AttentionSizes sizes = attention_sizes(shape, q, k, v, y, log_sum_exp);
    LOCKSTEP_ASSERT(dq.count() == q.count() && dy.count() == q.count() && dk.count() == k.count() &&
                    dv.count() == k.count());
    LOCKSTEP_ASSERT(dq.type() == q.type() && dy.type() == q.type() && dk.type() == q.type() && dv.type() == q.type());
    const std::int64_t outputs = shape.heads * shape.head_width, keys = shape.key_heads * shape.head_width;
    sizes.strides.dq = row_stride(dq, outputs);
    sizes.strides.dk = row_stride(dk, keys);
    sizes.strides.dv = row_stride(dv, keys);
    const RowStrides& strides = sizes.strides;
    const bool aligned = aligned_rows(q, strides.q) && aligned_rows(k, strides.k) && aligned_rows(v, strides.v) &&
                         aligned_rows(dq, strides.dq) && aligned_rows(dk, strides.dk) && aligned_rows(dv, strides.dv) &&
                         aligned_rows(y, outputs) && aligned_rows(dy, outputs);

    const std::int64_t heads = shape.batch * shape.heads;
    const std::int64_t padded = (shape.query_length + row_multiple - 1) / row_multiple * row_multiple;
    float* const scratch = scratch_of<float>(2 * heads * padded);
    const RowTerms terms{scratch, scratch + heads * padded, static_cast<int>(padded)};
    dispatch(q.type(), [&](auto element) {
        using T = decltype(element);
        with_head_width<T>(sizes, aligned, [&](auto head_width) {
            using W = decltype(head_width);
            using Keys = KeyGradientTile<W>;
            using Queries = QueryGradientTile<W>;
            launch({"attention_row_terms", grid_of(heads * ((padded + terms_rows - 1) / terms_rows)), terms_threads, 0,
                    stream()},
                   attention_row_terms_kernel<T, W::vectors>, terms, elements<T>(dy), elements<T>(y),
                   log_sum_exp.fp32(), sizes);
            const auto key_gradients = [&](auto kernel) {
                launch({"attention_key_gradient",
                        grid_of(shape.batch * shape.key_heads * ((shape.key_length + Keys::keys - 1) / Keys::keys)),
                        Keys::threads, Keys::shared_bytes, stream()},
                       kernel, strided_elements<T>(dk), strided_elements<T>(dv), elements<T>(dy),
                       strided_elements<T>(q), strided_elements<T>(k), strided_elements<T>(v), terms, sizes);
            };
            with_bounds(shape, [&](auto bounded) {
                if constexpr (Keys::at_once) {
                    key_gradients(attention_key_gradient_kernel<W, bounded(), true, true>);
                } else {
                    key_gradients(attention_key_gradient_kernel<W, bounded(), true, false>);
                    key_gradients(attention_key_gradient_kernel<W, bounded(), false, true>);
                }
                const std::int64_t rows = shape.query_length * sizes.group;
                launch({"attention_query_gradient",
                        grid_of(shape.batch * shape.key_heads * ((rows + Queries::queries - 1) / Queries::queries)),
                        Queries::threads, Queries::shared_bytes, stream()},
                       attention_query_gradient_kernel<W, bounded()>, strided_elements<T>(dq), elements<T>(dy),
                       strided_elements<T>(q), strided_elements<T>(k), strided_elements<T>(v), terms, sizes);
            });
        });
    });
}

}  // namespace lockstep::kernels::cuda
