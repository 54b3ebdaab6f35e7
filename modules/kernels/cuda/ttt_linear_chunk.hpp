// Shared by the kernels of TTT-Linear that take a chunk of four mini-batches at once, for 16-bit types. Inside a chunk
// all products read one W, that at its start; what the mini-batches before j changed reaches j through 16 × 16
// matrices:
//
//     Z_j = K_j W + c - Σ_{i<j} (K_j K_iᵀ + 1) (e⊙G)_i,    Z̄_j likewise with Q_j, and P_jj G_j.
//
// This is the scan over mini-batches, its sums in another order. A block of four warps works on one head of one
// sequence. Warp w owns mini-batch w of the chunk, whole rows of it, so that a LayerNorm's sums stay in the warp; of W
// it owns F/4 columns, in fp32 registers. Products' operands are bf16, also for fp16: dW exceeds the range of fp16.
// Padding is zeros; nonexistent tokens have λ = 0.
#pragma once

#include "kernels/cuda/ttt_linear.hpp"
#include "kernels/cuda/ttt_pieces.hpp"

namespace lockstep::kernels::cuda {

// Whole: f = F, mini-batches of 16, rows 16-byte aligned; else any f ≤ F, any mini-batch up to 16.
template <class T, int F, bool Whole>
struct TttChunk {
    static_assert(sizeof(T) == 2 && F % 32 == 0);
    static constexpr int mini_batches = ttt_chunk_mini_batches, rows = 16 * mini_batches;
    static constexpr int threads = 32 * mini_batches;
    static constexpr int width = F, blocks = F / 8, steps = F / 16;  // of 8 and 16 columns
    static constexpr int stride = F + 8;                             // of tiles: no bank conflicts
    static constexpr int tile = 16 * stride, chunk = rows * stride;  // elements
    static constexpr int square = F * stride;
};

// The tokens of a chunk: row r of mini-batch m is token m · mini_batch + r of the `rest` that follow its first one.
struct ChunkTokens {
    int rest, mini_batch;
    __device__ int mini_batches() const {
        const int all = (rest + mini_batch - 1) / mini_batch;
        return all < ttt_chunk_mini_batches ? all : ttt_chunk_mini_batches;
    }
    template <bool Whole>
    __device__ int token(int row) const {  // < 0: there is none
        const int number = row / 16, of = row % 16, at = Whole ? row : number * mini_batch + of;
        return at < rest && (Whole || of < mini_batch) ? at : -1;
    }
    __device__ int rows(int number) const {  // of a mini-batch; <= 0: it does not exist
        const int left = rest - number * mini_batch;
        return left < mini_batch ? left : mini_batch;
    }
};

// Rows of a head in device memory, from the chunk's first token on.
template <class T>
struct ChunkRows {
    T* first;
    int stride, width;
    bool aligned;
};

// A chunk into shared memory, zeros out of range; rounded to bf16 where it is an operand of products, else as it is.
// Copies may be asynchronous: complete after copy_async_wait and a barrier.
template <class Chunk, bool Whole, class To, class T>
__device__ inline void load_chunk(To* to, const ChunkRows<const T>& from, const ChunkTokens& tokens) {
    constexpr int each = 8, apart = 4 * each, pieces = Chunk::width / apart;  // four threads a row
    const int thread = static_cast<int>(threadIdx.x), first_column = thread % 4 * each;
#pragma unroll
    for (int half = 0; half < Chunk::rows; half += Chunk::threads / 4) {
        const int row = thread / 4 + half;
        const int token = tokens.token<Whole>(row);
        const bool exists = token >= 0;
        const T* const source = from.first + (exists ? token * from.stride + first_column : 0);
        To* const place = to + row * Chunk::stride + first_column;
#pragma unroll
        for (int piece = 0; piece < pieces; ++piece) {
            const int column = first_column + piece * apart;
            const bool valid = exists && (Whole || column < from.width);
            if (std::is_same_v<To, T> && (Whole || from.aligned)) {
                copy_async_16(place + piece * apart, valid ? source + piece * apart : from.first, valid);
                continue;
            }
            Vector16<To> converted{};
            if (valid && (Whole || from.aligned)) {
                const Vector16<T> values = load16(source + piece * apart);
#pragma unroll
                for (int i = 0; i < each; ++i) converted.at[i] = from_float<To>(to_float(values.at[i]));
            } else if (valid) {
#pragma unroll
                for (int i = 0; i < each; ++i)
                    if (column + i < from.width) converted.at[i] = from_float<To>(to_float(source[piece * apart + i]));
            }
            store16(place + piece * apart, converted);
        }
    }
}

// A saved state: W as bf16 [F, F], c. From shared memory when all of it has been published, and back.
template <int F>
constexpr std::size_t ttt_chunk_state_bytes = F* F * sizeof(bf16) + F * sizeof(float);
template <int F, class Body>
__device__ inline void for_state_pieces(Body&& body) {  // body(place in shared memory, place in the saved state)
    const int thread = static_cast<int>(threadIdx.x), row = thread / 4, column = thread % 4 * 8;
#pragma unroll
    for (int first = 0; first < F; first += 32)
#pragma unroll
        for (int piece = 0; piece < F; piece += 32)
            body((first + row) * (F + 8) + column + piece, (first + row) * F + column + piece);
}
template <int F>
__device__ inline void save_chunk_state(unsigned char* saved, std::int64_t place, const bf16* weight,
                                        const float* bias) {
    auto* const to = reinterpret_cast<bf16*>(saved + place * ttt_chunk_state_bytes<F>);
    for_state_pieces<F>([&](int from, int at) { store16(to + at, load16(weight + from)); });
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < F) reinterpret_cast<float*>(to + F * F)[thread] = bias[thread];
}
template <int F>
__device__ inline void load_chunk_state(bf16* weight, float* bias, const unsigned char* saved, std::int64_t place) {
    const auto* const from = reinterpret_cast<const bf16*>(saved + place * ttt_chunk_state_bytes<F>);
    for_state_pieces<F>([&](int to, int at) { copy_async_16(weight + to, from + at); });
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < F / 4) copy_async_16(bias + 4 * thread, reinterpret_cast<const float*>(from + F * F) + 4 * thread);
}

// The same of a model in the tensors' layout: as it is when it has been published.
template <int F>
__device__ inline void load_chunk_model(bf16* weight, float* bias, const float* weight_from, const float* bias_from,
                                        int width) {
    const int thread = static_cast<int>(threadIdx.x), row = thread / 4, column = thread % 4 * 8;
#pragma unroll 1
    for (int first = 0; first < F; first += 32)
#pragma unroll 1
        for (int piece = 0; piece < F; piece += 32) {
            Vector16<bf16> values{};
            const int at = first + row, from = column + piece;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (at < width && from + i < width) values.at[i] = from_float<bf16>(weight_from[at * width + from + i]);
            store16(weight + at * (F + 8) + from, values);
        }
    if (thread < F) bias[thread] = thread < width ? bias_from[thread] : 0.0f;
}

// Products of tiles with F + 8 elements a row, as those of tile.hpp. Each address is one base per lane plus a constant;
// otherwise the compiler would keep the computed addresses in registers between products.
template <int F, int K>
__device__ inline void load_rows(Left<bf16, K>& left, const bf16* tile) {
    const int lane = lane_index();
    const bf16* const row = tile + lane % 16 * (F + 8) + lane / 16 * 8;
    unrolled<K>([&](auto k) { load_matrix_x4<32 * k>(left.at[k], row); });
}
// sums[m] += left[m] right.
template <Right layout, int F, int K, int N, int M>
__device__ inline void add_products(Sums<N> (&sums)[M], const Left<bf16, K> (&left)[M], const bf16* right) {
    constexpr int stride = F + 8;
    const bf16* const row = detail::right_pair_row<layout>(right, stride);
    unrolled<K>([&](auto k) {
        unrolled<N / 2>([&](auto pair) {
            constexpr int n = 2 * pair;
            unsigned r[4];
            if constexpr (layout == Right::rows_of_n)
                load_matrix_x4<2 * (8 * n * stride + 16 * k)>(r, row);
            else
                load_matrix_x4_transposed<2 * (16 * k * stride + 8 * n)>(r, row);
            const unsigned low[2] = {r[0], r[1]}, high[2] = {r[2], r[3]};
#pragma unroll
            for (int m = 0; m < M; ++m) {
                mma_16x8x16(sums[m].at[n], left[m].at[k], low, bf16{});
                mma_16x8x16(sums[m].at[n + 1], left[m].at[k], high, bf16{});
            }
        });
        if constexpr (N % 2 == 1) {
            static_assert(layout == Right::rows_of_k);
            unsigned b[2];
            load_matrix_x2_transposed<2 * (16 * k * stride + 8 * (N - 1))>(b, right + lane_index() % 16 * stride);
#pragma unroll
            for (int m = 0; m < M; ++m) mma_16x8x16(sums[m].at[N - 1], left[m].at[k], b, bf16{});
        }
    });
}
template <Right layout, int F, int K, int N>
__device__ inline void add_product(Sums<N>& sums, const Left<bf16, K>& left, const bf16* right) {
    add_products<layout, F>(reinterpret_cast<Sums<N>(&)[1]>(sums), reinterpret_cast<const Left<bf16, K>(&)[1]>(left),
                            right);
}

// The sums over a row of a warp's tile, of which each lane has its part: [0] row g, [1] row g + 8.
template <int Terms>
__device__ inline void quad_sums(float (&value)[Terms][2]) {
#pragma unroll
    for (int k = 0; k < Terms; ++k)
#pragma unroll
        for (int r = 0; r < 2; ++r) value[k][r] = lanes_sum<4>(value[k][r]);
}

// What a mini-batch's G is made of besides X̂ and U = γ⊙D: G = U/σ + offset - projection/σ X̂. Of rows g and g + 8.
struct ChunkLoss {
    float inverse[2];     // 1/σ
    float projection[2];  // ⟨U X̂⟩
    float offset[2];
};

// The place of a lane in the tiles of its warp's mini-batch, and what it does there. Of a Sums<F/8> of the mini-batch
// the lane holds rows g and g + 8.
template <class T, int F, bool Whole>
struct ChunkLane {
    using Chunk = TttChunk<T, F, Whole>;
    static constexpr int N = Chunk::blocks, K = Chunk::steps, stride = Chunk::stride, tile = Chunk::tile;
    using Rows = Sums<N>;

    int warp, row, column, width;  // row g; columns 8n + column and the next
    int place;                     // of (g, column) in a tile
    float share;                   // 1/f

    const float* exists;  // [F] in shared memory: 1, 0 in padding; read again and again, for 24 predicates would
                          // take registers

    __device__ ChunkLane(int head_width, const float* existing)
        : warp(static_cast<int>(threadIdx.x) / warp_width),
          row(lane_index() / 4),
          column(2 * (lane_index() % 4)),
          width(Whole ? F : head_width),
          place(row * stride + column),
          share(1.0f / static_cast<float>(Whole ? F : head_width)),
          exists(existing) {}

    __device__ bool inside(int n, int i) const { return Whole || exists[8 * n + column + i] != 0; }
    // z in padding: 0.
    __device__ float masked(int n, int i, float value) const { return inside(n, i) ? value : 0.0f; }

    // Two neighbours of row g + 8r, from a tile that has T's own values.
    struct Two {
        float at[2];
    };
    __device__ Two two(const T* own_tile, int n, int r) const {
        const auto word = *reinterpret_cast<const std::uint32_t*>(own_tile + place + 8 * r * stride + 8 * n);
        return {{unpack_low<T>(word), unpack_high<T>(word)}};
    }
    // The same of an operand, whose tile has T's values if T is bf16: else from device memory.
    __device__ Two two(const bf16* own_tile, const ChunkRows<const T>& from, int first_token, int rows, int n,
                       int r) const {
        if constexpr (std::is_same_v<T, bf16>) {
            return two(own_tile, n, r);
        } else {
            Two values{};
            if (row + 8 * r < rows) {
                const T* const source = from.first + (first_token + row + 8 * r) * from.stride + column + 8 * n;
                if (inside(n, 0)) values.at[0] = to_float(source[0]);
                if (inside(n, 1)) values.at[1] = to_float(source[1]);
            }
            return values;
        }
    }
    __device__ Two of_columns(const float* values, int n) const {  // from [F] in shared memory
        const auto pair = *reinterpret_cast<const Pair<float>*>(values + 8 * n + column);
        return {{pair.at[0], pair.at[1]}};
    }

    // D = γ⊙X̂ + β - (V - K) of two neighbours.
    __device__ Two difference(const float* gamma, const float* beta, int n, const Two& x, const Two& key,
                              const Two& value) const {
        const Two scale = of_columns(gamma, n), shift = of_columns(beta, n);
        Two d;
#pragma unroll
        for (int i = 0; i < 2; ++i) d.at[i] = fmaf(scale.at[i], x.at[i], shift.at[i]) - (value.at[i] - key.at[i]);
        return d;
    }

    // Rounded into the tile of this warp's mini-batch.
    __device__ void store(bf16* own_tile, int n, int r, float low, float high) const {
        *reinterpret_cast<std::uint32_t*>(own_tile + place + 8 * r * stride + 8 * n) = pack_pair<bf16>(low, high);
    }
    __device__ void store(bf16* own_tile, const Rows& values) const {
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int r = 0; r < 2; ++r) store(own_tile, n, r, values.at[n][2 * r], values.at[n][2 * r + 1]);
    }

    // ±values to device memory, existing rows only.
    template <bool Negative = false>
    __device__ void store_to(const ChunkRows<T>& to, int first_token, int rows, const Rows& values) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (row + 8 * r >= rows) continue;
            T* const place_of_row = to.first + (first_token + row + 8 * r) * to.stride + column;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const float first = values.at[n][2 * r], second = values.at[n][2 * r + 1];
                const float low = Negative ? -first : first, high = Negative ? -second : second;
                if (Whole || to.aligned) {  // the width is even
                    if (inside(n, 0)) *reinterpret_cast<std::uint32_t*>(place_of_row + 8 * n) = pack_pair<T>(low, high);
                } else {
                    if (inside(n, 0)) place_of_row[8 * n] = from_float<T>(low);
                    if (inside(n, 1)) place_of_row[8 * n + 1] = from_float<T>(high);
                }
            }
        }
    }

    __device__ Rows broadcast(const float* values) const {  // [F] in shared memory, in all rows
        Rows z;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const Two pair = of_columns(values, n);
#pragma unroll
            for (int i = 0; i < 4; ++i) z.at[n][i] = pair.at[i & 1];
        }
        return z;
    }

    // z becomes z - ⟨z⟩; inverse: 1/σ. z is 0 in padding, before and after.
    __device__ void centre(Rows& z, float (&inverse)[2]) const {
        float sum[1][2] = {}, squares[1][2] = {};
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[0][i / 2] += z.at[n][i];
        quad_sums(sum);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                z.at[n][i] = masked(n, i & 1, z.at[n][i] - share * sum[0][i / 2]);
                squares[0][i / 2] += z.at[n][i] * z.at[n][i];
            }
        quad_sums(squares);
#pragma unroll
        for (int r = 0; r < 2; ++r) inverse[r] = 1.0f / sqrtf(share * squares[0][r] + ttt_epsilon);
    }

    // In: this lane's sum of two rows for each of its columns. Out: the sum over the mini-batch's rows, to row[F] or
    // added to it. Lanes with the same columns halve the work at each step.
    template <bool Add>
    __device__ void column_sums(float* to, Columns<N>& values) const {
        const int lane = lane_index();
        int first = 0;
        bool twice = false;  // two lanes hold the same
        const auto halve = [&](auto blocks, auto distance) {
            constexpr int count = decltype(blocks)::value, apart = decltype(distance)::value;
            const bool upper = (lane & apart) != 0;
            if constexpr (count % 2 == 0) {
#pragma unroll
                for (int n = 0; n < count / 2; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float low = values.at[n][i], high = values.at[n + count / 2][i];
                        values.at[n][i] = (upper ? high : low) + __shfl_xor_sync(all_lanes, upper ? low : high, apart);
                    }
                if (upper) first += count / 2;
                return std::integral_constant<int, count / 2>{};
            } else {
#pragma unroll
                for (int n = 0; n < count; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i) values.at[n][i] += __shfl_xor_sync(all_lanes, values.at[n][i], apart);
                if (upper) twice = true;
                return std::integral_constant<int, count>{};
            }
        };
        const auto half = halve(std::integral_constant<int, N>{}, std::integral_constant<int, 16>{});
        const auto quarter = halve(half, std::integral_constant<int, 8>{});
        const auto rest = halve(quarter, std::integral_constant<int, 4>{});
        if (twice) return;
        float* const place_of = to + 8 * first + column;
#pragma unroll
        for (int n = 0; n < decltype(rest)::value; ++n) {
            auto& pair = *reinterpret_cast<Pair<float>*>(place_of + 8 * n);
            const Pair<float> before = Add ? pair : Pair<float>{};
            pair = {{before.at[0] + values.at[n][0], before.at[1] + values.at[n][1]}};
        }
    }

    // LNL2 of this warp's mini-batch. z, in: Z; out: X̂. difference(n, r, x): D of two neighbours. gradient(n, r, g): G
    // of them.
    template <class Difference, class Gradient>
    __device__ void loss_gradient(Rows& z, ChunkLoss& loss, const float* gamma, Difference&& difference,
                                  Gradient&& gradient) const {
        centre(z, loss.inverse);
        Rows u;
        float sum[2][2] = {};  // ΣU, ΣUX̂
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const Two weight = of_columns(gamma, n);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                Two x;
#pragma unroll
                for (int i = 0; i < 2; ++i) x.at[i] = z.at[n][2 * r + i] *= loss.inverse[r];
                const Two d = difference(n, r, x);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float product = weight.at[i] * d.at[i];  // 0 in padding
                    u.at[n][2 * r + i] = product;
                    sum[0][r] += product;
                    sum[1][r] += product * x.at[i];
                }
            }
        }
        quad_sums(sum);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            loss.projection[r] = share * sum[1][r];
            loss.offset[r] = -share * sum[0][r] * loss.inverse[r];
#pragma unroll
            for (int n = 0; n < N; ++n) {
                Two g;
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    g.at[i] = gradient_of(loss, n, r, i, u.at[n][2 * r + i], z.at[n][2 * r + i]);
                gradient(n, r, g);
            }
        }
    }
    __device__ float gradient_of(const ChunkLoss& loss, int n, int r, int i, float u, float x) const {
        return masked(n, i, fmaf(fmaf(-loss.projection[r], x, u), loss.inverse[r], loss.offset[r]));
    }
};

// left rightᵀ + 1, 16 × 16; `right`: a tile.
template <int F>
__device__ inline Sums<2> scores_of(const Left<bf16, F / 16>& left, const bf16* right) {
    Sums<2> scores;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores.at[n][i] = 1.0f;
    add_product<Right::rows_of_n, F>(scores, left, right);
    return scores;
}

// W as a warp owns it: rows 16k … of its F/4 columns in at[k].
template <int F>
struct ChunkState {
    static constexpr int own = F / 32, parts = F / 16;
    Sums<own> at[parts];

    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < parts; ++k) at[k].clear();
    }
    __device__ static int first_column() {
        return static_cast<int>(threadIdx.x) / warp_width * 8 * own;
    }

    // body(value, row, column) for what this lane holds.
    template <class Body>
    __device__ void for_each(Body&& body) {
#pragma unroll
        for (int k = 0; k < parts; ++k)
#pragma unroll
            for (int n = 0; n < own; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    body(at[k].at[n][i], 16 * k + Sums<own>::row(i), first_column() + Sums<own>::column(n, i));
    }
    // From and to a tensor [f, f].
    __device__ void load(const float* weight, int width) {
        for_each([&](float& value, int row, int column) {
            value = row < width && column < width ? weight[row * width + column] : 0.0f;
        });
    }
    __device__ void store(float* weight, int width) {
        for_each([&](float& value, int row, int column) {
            if (row < width && column < width) weight[row * width + column] = value;
        });
    }
    // Rounded, as products read it, into rows of inputs in shared memory.
    __device__ void publish(bf16* weight) {
#pragma unroll
        for (int k = 0; k < parts; ++k) store_sums_in_pairs(weight + 16 * k * (F + 8) + first_column(), F + 8, at[k]);
    }
    // W += leftᵀ right over a mini-batch's tokens; both tiles.
    __device__ void add(const bf16* left, const bf16* right) {
        Left<bf16, 1> columns[parts];
        const int lane = lane_index();
        const bf16* const row = left + (lane % 8 + lane / 16 * 8) * (F + 8) + lane / 8 % 2 * 8;
        unrolled<parts>([&](auto k) { load_matrix_x4_transposed<32 * k>(columns[k].at[0], row); });
        add_products<Right::rows_of_k, F>(at, columns, right + first_column());
    }
};

// c or dc', which thread i < F keeps up in shared memory: [F], and [4, F] of what the mini-batches add.
template <int F>
struct ChunkBias {
    static constexpr int floats = (1 + ttt_chunk_mini_batches) * F;
    float* whole;
    __device__ float* part(int mini_batch) const { return whole + (1 + mini_batch) * F; }
    __device__ void load(const float* from, int width) const {
        const int thread = static_cast<int>(threadIdx.x);
        if (thread < F) whole[thread] = from && thread < width ? from[thread] : 0.0f;
    }
    __device__ void add(int mini_batches) const {
        const int thread = static_cast<int>(threadIdx.x);
        if (thread >= F) return;
        float sum = whole[thread];
        for (int i = 0; i < mini_batches; ++i) sum += part(i)[thread];
        whole[thread] = sum;
    }
    __device__ void store(float* to, int width) const {
        const int thread = static_cast<int>(threadIdx.x);
        if (thread < width) to[thread] = whole[thread];
    }
};

// Calls launch_for(F, Whole, Pieces), integral constants, with what is compiled for this shape. Pieces: whether
// documents share sequences; kernels without them keep their registers.
template <class Function>
void for_chunk_kernel(const TttShape& shape, bool aligned, Function&& launch_for) {
    const auto with_whole = [&](auto padded, auto whole) {
        if (shape.documents.joined()) return launch_for(padded, whole, std::false_type{});
        return launch_for(padded, whole, std::true_type{});
    };
    const auto with = [&](auto padded) {
        constexpr int F = decltype(padded)::value;
        if constexpr (F > 32)
            if (aligned && shape.head_width == F && shape.mini_batch == 16) return with_whole(padded, std::true_type{});
        return with_whole(padded, std::false_type{});
    };
    LOCKSTEP_ASSERT(shape.batch * shape.length < (std::int64_t{1} << 31));  // tokens are counted by an int
    if (shape.head_width <= 32) return with(std::integral_constant<int, 32>{});
    if (shape.head_width <= 64) return with(std::integral_constant<int, 64>{});
    return with(std::integral_constant<int, 96>{});
}

}  // namespace lockstep::kernels::cuda
