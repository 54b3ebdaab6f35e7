// TTT-Linear forward by chunks: a block processes the chunks of a (sequence, head) pair, prefetching the next one.
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_linear_chunk.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct ForwardParameters {
    TttRows<const T> q, k, v;
    TttRows<T> y;
    const float *step_size, *token_scale, *weight, *bias, *norm_weight, *norm_bias;
    unsigned char* saved;   // [pairs, chunks] states, may be null
    TttModels final_state;  // may be null
    int start_models;       // `weight` and `bias`: of pair mod start_models
    TttPieces pieces;
    int length, chunks, heads, width, mini_batch;
    bool aligned;
};

template <class T, int F, bool Whole>
struct ForwardShared {
    using Chunk = TttChunk<T, F, Whole>;
    // Q, K, V of two chunks; e⊙G; W
    static constexpr int operands = 7 * Chunk::chunk + Chunk::square;
    static constexpr int floats =
        ChunkBias<F>::floats + 3 * F + 16 + 2 * Chunk::rows;  // c, γ, β, padding; τ; λ of two chunks
    static constexpr std::size_t bytes = operands * sizeof(bf16) + floats * sizeof(float);
};

// Blocks that a multiprocessor's shared memory has room for. At F = 96 it is one: two need 230 KB, an H100 has 228.
template <class T, int F, bool Whole>
constexpr int forward_blocks() {
    if (F > 64) return 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (std::is_same_v<T, bf16> && Whole) return 3;  // others would spill
#endif
    return 2;
}

template <class T, int F, bool Whole, bool Pieces>
__global__ void __launch_bounds__(TttChunk<T, F, Whole>::threads, forward_blocks<T, F, Whole>())
    ttt_linear_chunk_forward_kernel(ForwardParameters<T> p) {
    using Chunk = TttChunk<T, F, Whole>;
    constexpr int tile = Chunk::tile;
    bf16* const tiles = shared_memory<bf16>();
    bf16* const steps_tiles = tiles + 6 * Chunk::chunk;  // -e⊙G
    bf16* const weight = steps_tiles + Chunk::chunk;
    const ChunkBias<F> bias{reinterpret_cast<float*>(weight + Chunk::square)};
    float* const gamma = bias.whole + ChunkBias<F>::floats;
    float* const beta = gamma + F;
    float* const exists = beta + F;
    float* const tau = exists + F;
    float* const lambda = tau + 16;

    const int thread = static_cast<int>(threadIdx.x);
    const ChunkLane<T, F, Whole> lane(p.width, exists);
    const int warp = lane.warp, mini_batch = Whole ? 16 : p.mini_batch, width = lane.width;
    const int pair = static_cast<int>(blockIdx.x), sequence = pair / p.heads, head = pair % p.heads;
    const int chunk_tokens = Chunk::mini_batches * mini_batch;
    TttPiece piece{0, p.length, false};
    if constexpr (Pieces) piece = p.pieces.from(sequence, 0);
    const auto first_token = [&] { return static_cast<std::int64_t>(sequence) * p.length + piece.begin; };
    const float* step_size = p.step_size + first_token() * p.heads + head;  // of the next chunk to be fetched
    const auto rows_from = [&](const auto& tensor) {
        using Element = std::remove_pointer_t<decltype(tensor.first)>;
        return ChunkRows<Element>{tensor.first + first_token() * tensor.stride + head * width, tensor.stride, width,
                                  p.aligned};
    };
    ChunkRows<const T> q = rows_from(p.q), k = rows_from(p.k);
    ChunkRows<T> y = rows_from(p.y);
    const auto advance = [&](auto& rows) { rows.first += static_cast<std::int64_t>(chunk_tokens) * rows.stride; };

    // The tiles of a chunk; returns λ of row `thread`. Copies go in the order of the chunks.
    ChunkRows<const T> next_q = q, next_k = k, next_v = rows_from(p.v);
    const auto fetch = [&](int number) {
        const ChunkTokens tokens{piece.length - number * chunk_tokens, mini_batch};
        bf16* const to = tiles + number % 2 * 3 * Chunk::chunk;
        load_chunk<Chunk, Whole>(to, next_q, tokens);
        load_chunk<Chunk, Whole>(to + Chunk::chunk, next_k, tokens);
        load_chunk<Chunk, Whole>(reinterpret_cast<T*>(to + 2 * Chunk::chunk), next_v, tokens);
        copy_async_commit();
        advance(next_q);
        advance(next_k);
        advance(next_v);
        const int token = thread < Chunk::rows ? tokens.token<Whole>(thread) : -1;
        const float value = token >= 0 ? step_size[static_cast<std::int64_t>(token) * p.heads] : 0.0f;
        step_size += static_cast<std::int64_t>(chunk_tokens) * p.heads;
        return value;
    };

    const auto is_chunk = [&](int number) {  // of the piece; its number of chunks would take a register
        return Pieces ? number * chunk_tokens < piece.length : number < p.chunks;
    };

    ChunkState<F> state;
    if (thread < F) {
        gamma[thread] = thread < width ? p.norm_weight[static_cast<std::int64_t>(head) * width + thread] : 0.0f;
        exists[thread] = thread < width ? 1.0f : 0.0f;
        beta[thread] = thread < width ? p.norm_bias[static_cast<std::int64_t>(head) * width + thread] : 0.0f;
    }
    if (thread < 16) tau[thread] = thread < mini_batch ? p.token_scale[thread] : 0.0f;
    while (true) {
        const std::int64_t model = piece.carried ? pair : pair % p.start_models;
        state.load((piece.carried ? p.pieces.initial.weight1 : p.weight) + model * width * width, width);
        bias.load((piece.carried ? p.pieces.initial.bias1 : p.bias) + model * width, width);
        const float first_lambda = fetch(0);
        if (thread < Chunk::rows) lambda[thread] = first_lambda;

        for (int number = 0; is_chunk(number); ++number) {
            state.publish(weight);
            if (number > 0) bias.add(Chunk::mini_batches);
            copy_async_wait<0>();
            __syncthreads();  // the tiles have arrived, W and c are whole; the other tiles are no longer read
            const float next_lambda = is_chunk(number + 1) ? fetch(number + 1) : 0.0f;
            const ChunkTokens tokens{piece.length - number * chunk_tokens, mini_batch};
            const int count = tokens.mini_batches(), rows = tokens.rows(warp), own_token = warp * mini_batch;
            bf16* const queries = tiles + number % 2 * 3 * Chunk::chunk;
            bf16 *const keys = queries + Chunk::chunk, *const values = keys + Chunk::chunk;
            const TileSteps steps{tau, lambda + number % 2 * Chunk::rows + 16 * warp, rows};
            bf16* const own_values = values + warp * tile;
            const bf16* const own_keys = keys + warp * tile;

            // Of a piece, not the first one, which is the model that it starts from.
            if (p.saved && (!Pieces || number > 0))
                save_chunk_state<F>(
                    p.saved,
                    static_cast<std::int64_t>(pair) * p.chunks + ttt_saved_before(piece, chunk_tokens) + number, weight,
                    bias.whole);

            // Mini-batch by mini-batch: G and -e⊙G. G lies where V was.
            Left<bf16, Chunk::steps> left;
            load_rows<F>(left, own_keys);
            Sums<Chunk::blocks> z = lane.broadcast(bias.whole);
            add_product<Right::rows_of_k, F>(z, left, weight);
#pragma unroll 1
            for (int i = 0; i < warp && i < count; ++i) {
                Left<bf16, 1> scores;
                to_left(scores, scores_of<F>(left, keys + i * tile));
                barrier_of_warps();  // -e⊙G of mini-batch i is whole
                add_product<Right::rows_of_k, F>(z, scores, steps_tiles + i * tile);
            }
            if (warp < count) {
                ChunkLoss loss;
                const float last[2] = {-steps.last(lane.row), -steps.last(lane.row + 8)};
                bf16* const own_steps = steps_tiles + warp * tile;
                Columns<Chunk::blocks> sums;
                sums.clear();
                lane.loss_gradient(
                    z, loss, gamma,
                    [&](int n, int r, const auto& x) {
                        const auto key = lane.two(own_keys, k, own_token, rows, n, r);
                        const auto value = lane.two(reinterpret_cast<const T*>(own_values), n, r);
                        return lane.difference(gamma, beta, n, x, key, value);
                    },
                    [&](int n, int r, const auto& g) {
                        const float low = last[r] * g.at[0], high = last[r] * g.at[1];
                        lane.store(own_values, n, r, g.at[0], g.at[1]);
                        lane.store(own_steps, n, r, low, high);
                        sums.at[n][0] += low;
                        sums.at[n][1] += high;
                    });
                lane.template column_sums<false>(bias.part(warp), sums);
            }
#pragma unroll 1
            for (int i = warp; i < count; ++i) barrier_of_warps();
#pragma unroll 1
            for (int i = 0; i < count; ++i) state.add(keys + i * tile, steps_tiles + i * tile);

            if (warp < count) {
                load_rows<F>(left, queries + warp * tile);
                z = lane.broadcast(bias.whole);
                add_product<Right::rows_of_k, F>(z, left, weight);
                Left<bf16, 1> scores;
#pragma unroll 1
                for (int i = 0; i < warp; ++i) {
                    to_left(scores, scores_of<F>(left, keys + i * tile));
                    add_product<Right::rows_of_k, F>(z, scores, steps_tiles + i * tile);
                }
                Sums<2> own_scores = scores_of<F>(left, own_keys);
                const Sums<2> e = step_tile(steps);
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) own_scores.at[n][i] *= -e.at[n][i];
                to_left(scores, own_scores);
                add_product<Right::rows_of_k, F>(z, scores, own_values);

                float inverse[2];
                lane.centre(z, inverse);
#pragma unroll
                for (int n = 0; n < Chunk::blocks; ++n) {
                    const auto scale = lane.of_columns(gamma, n), shift = lane.of_columns(beta, n);
#pragma unroll
                    for (int r = 0; r < 2; ++r) {
                        const auto query = lane.two(queries + warp * tile, q, own_token, rows, n, r);
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            float& value = z.at[n][2 * r + i];
                            value = query.at[i] + fmaf(scale.at[i], value * inverse[r], shift.at[i]);
                        }
                    }
                }
                lane.store_to(y, own_token, rows, z);
            }
            if (thread < Chunk::rows) lambda[(number + 1) % 2 * Chunk::rows + thread] = next_lambda;
            if constexpr (!std::is_same_v<T, bf16>) {
                advance(q);
                advance(k);
            }
            advance(y);
            __syncthreads();  // W and c have been read
        }
        if constexpr (!Pieces) break;
        const int end = piece.begin + piece.length;
        if (end == p.length) break;
        piece = p.pieces.from(sequence, end);
        step_size = p.step_size + first_token() * p.heads + head;
        q = next_q = rows_from(p.q);
        k = next_k = rows_from(p.k);
        next_v = rows_from(p.v);
        y = rows_from(p.y);
    }
    if (p.final_state.weight1) {
        const std::int64_t columns = static_cast<std::int64_t>(pair) * width;
        state.store(p.final_state.weight1 + columns * width, width);
        bias.add((piece.length - 1) / mini_batch % Chunk::mini_batches + 1);  // of the last chunk
        bias.store(p.final_state.bias1 + columns, width);
    }
}

}  // namespace

void ttt_linear_forward_by_chunks(const TttArguments& arguments, Type type) {
    const TttShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        if constexpr (sizeof(T) == 2) {
            ForwardParameters<T> p{};
            p.q = ttt_rows<const T>(arguments.q);
            p.k = ttt_rows<const T>(arguments.k);
            p.v = ttt_rows<const T>(arguments.v);
            p.y = ttt_rows<T>(arguments.y);
            p.step_size = arguments.step_size;
            p.token_scale = arguments.token_scale;
            p.weight = arguments.start().weight1.fp32();
            p.bias = arguments.start().bias1.fp32();
            p.start_models = static_cast<int>(arguments.start_models());
            p.final_state = TttModels(arguments.final_state);
            p.norm_weight = arguments.inner.norm_weight.fp32();
            p.norm_bias = arguments.inner.norm_bias.fp32();
            p.saved = reinterpret_cast<unsigned char*>(arguments.saved);
            p.pieces = TttPieces(arguments);
            p.length = static_cast<int>(shape.length);
            p.chunks = static_cast<int>(ttt_linear_chunks(shape));
            p.heads = static_cast<int>(shape.heads);
            p.width = static_cast<int>(shape.head_width);
            p.mini_batch = static_cast<int>(shape.mini_batch);
            p.aligned = ttt_aligned(shape, p.q, p.k, p.v, p.y);
            for_chunk_kernel(shape, p.aligned, [&](auto padded, auto whole, auto pieces) {
                constexpr int F = decltype(padded)::value;
                constexpr bool Whole = decltype(whole)::value, Pieces = decltype(pieces)::value;
                launch({"ttt_linear_chunk_forward", dim3(static_cast<unsigned>(arguments.pairs())),
                        TttChunk<T, F, Whole>::threads, ForwardShared<T, F, Whole>::bytes, arguments.stream},
                       ttt_linear_chunk_forward_kernel<T, F, Whole, Pieces>, p);
            });
        }
    });
}

}  // namespace lockstep::kernels::cuda
