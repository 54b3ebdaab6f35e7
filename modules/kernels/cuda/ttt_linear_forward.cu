// TTT-Linear forward: a block processes a (sequence, head) pair's mini-batches, prefetching the tiles of the next one.
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_linear.hpp"
#include "kernels/cuda/ttt_pieces.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct ForwardParameters {
    TttRows<const T> q, k, v;
    TttRows<T> y;
    const float *step_size, *token_scale, *weight, *bias, *norm_weight, *norm_bias;
    float* saved;               // [pairs, kept states, F·F + F], may be null
    TttModels final_state;      // may be null
    std::int64_t start_models;  // `weight` and `bias`: of pair mod start_models
    TttPieces pieces;
    std::int64_t mini_batches, interval;  // of a sequence; mini-batches between kept states
    int heads, mini_batch, width;
    bool aligned;
};

template <class T, int F>
struct ForwardShared {
    using Linear = TttLinear<T, F>;
    using Operand = typename Linear::Operand;
    static constexpr int rows_of_state = Linear::registers_to_operand ? 0 : Linear::square;
    // Q, K, V of two mini-batches, G, e⊙G, for float Wᵀ
    static constexpr int operands = 8 * Linear::tile + rows_of_state;
    static constexpr int floats = RowSums<F / 16>::floats + 3 * 16;  // row sums, τ, λ of two mini-batches
    static constexpr std::size_t bytes = operands * sizeof(Operand) + floats * sizeof(float);
};

template <class T, int F, bool Pieces>
__global__ void __launch_bounds__(2 * F) ttt_linear_forward_kernel(ForwardParameters<T> p) {
    using Linear = TttLinear<T, F>;
    using Operand = typename Linear::Operand;
    constexpr int tile = Linear::tile, stride = Linear::stride;
    Operand* const tiles = shared_memory<Operand>();
    Operand* const g_tile = tiles + 6 * tile;
    Operand* const step_work = tiles + 7 * tile;
    Operand* const state_rows = tiles + 8 * tile;
    float* const sums_work = reinterpret_cast<float*>(tiles + ForwardShared<T, F>::operands);
    float* const tau = sums_work + RowSums<F / 16>::floats;
    float* const lambda = tau + 16;

    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_column = 16 * warp;
    const std::int64_t pair = blockIdx.x, sequence = pair / p.heads, head = pair % p.heads;
    TttPiece piece{0, p.pieces.length, false};
    if constexpr (Pieces) piece = p.pieces.from(sequence, 0);
    std::int64_t first_token = sequence * p.pieces.length;  // of the piece
    const auto of = [&](const auto& tensor) { return HeadRows{tensor.stride, p.width, p.aligned}; };
    const auto at = [&](const auto& tensor, std::int64_t token) {
        return tensor.first + (first_token + token) * tensor.stride + head * p.width;
    };
    const TileColumns<2> columns{first_column, p.width};
    RowSums<F / 16> row_sums(sums_work, warp);

    // The tiles of mini-batch `number`; returns λ of token `thread`.
    const auto fetch = [&](std::int64_t number) {
        const std::int64_t start = number * p.mini_batch, rest = piece.length - start;
        const int rows = static_cast<int>(rest < p.mini_batch ? rest : p.mini_batch);
        Operand* const to = tiles + number % 2 * 3 * tile;
        load_tile<T, F>(to, at(p.q, start), of(p.q), rows);
        load_tile<T, F>(to + tile, at(p.k, start), of(p.k), rows);
        load_tile<T, F>(to + 2 * tile, at(p.v, start), of(p.v), rows);
        copy_async_commit();
        return thread < rows ? p.step_size[(first_token + start + thread) * p.heads + head] : 0.0f;
    };

    Sums<F / 8> state;
    Columns<2> bias;
    const Columns<2> gamma = columns.load(p.norm_weight + head * p.width);
    const Columns<2> beta = columns.load(p.norm_bias + head * p.width);
    if (thread < 16) tau[thread] = thread < p.mini_batch ? p.token_scale[thread] : 0.0f;
    while (true) {
        const std::int64_t mini_batches = Pieces ? (piece.length + p.mini_batch - 1) / p.mini_batch : p.mini_batches;
        const std::int64_t model = piece.carried ? pair : pair % p.start_models;
        load_model<F>(state, bias, (piece.carried ? p.pieces.initial.weight1 : p.weight) + model * p.width * p.width,
                      (piece.carried ? p.pieces.initial.bias1 : p.bias) + model * p.width, columns);
        const float first_lambda = fetch(0);
        if (thread < 16) lambda[thread] = first_lambda;

        for (std::int64_t number = 0; number < mini_batches; ++number) {
            copy_async_wait<0>();
            __syncthreads();  // the tiles have arrived; the other ones are no longer read
            const float next_lambda = number + 1 < mini_batches ? fetch(number + 1) : 0.0f;
            const std::int64_t start = number * p.mini_batch, rest = piece.length - start;
            const int rows = static_cast<int>(rest < p.mini_batch ? rest : p.mini_batch);
            const Operand* const queries = tiles + number % 2 * 3 * tile;
            const Operand *const keys = queries + tile, *const values = keys + tile;
            const TileSteps steps{tau, lambda + number % 2 * 16, rows};

            if (p.saved && number > 0 && number % p.interval == 0) {
                const std::int64_t kept = (p.mini_batches - 1) / p.interval,
                                   before = ttt_saved_before(piece, static_cast<int>(p.interval) * p.mini_batch);
                float* const to = p.saved + (pair * kept + before + number / p.interval - 1) * Linear::state_floats;
                keep_weights<F>(to, state);
                store_columns(to + F * F, bias, first_column);
            }
            if constexpr (!Linear::registers_to_operand) {
                store_rows<T, F>(state_rows, stride, state);
                __syncwarp(all_lanes);
            }

            LossTerms<2> terms;
            terms.normal = broadcast(bias);
            Sums<2> z = broadcast(bias), scores;
            Left<Operand, F / 16> left;
            load_left(left, keys, stride);
            multiply_state<T, F>(terms.normal, left, state, state_rows);
            load_left(left, queries, stride);
            multiply_state<T, F>(z, left, state, state_rows);
            scores.clear();
            multiply<Right::rows_of_n>(scores, left, keys, stride);

            terms.difference =
                take_target<T, F>(keys, values, at(p.k, start), at(p.v, start), of(p.k), of(p.v), rows, first_column);
            loss_gradient(terms, gamma, beta, columns, row_sums);
            store_tile<T, F>(g_tile, terms.gradient, first_column);
            __syncwarp(all_lanes);
            const Sums<2> e = step_tile(steps);
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) scores.at[n][i] = -e.at[n][i] * (scores.at[n][i] + 1.0f);
            Left<Operand, 1> p_left;
            to_left(p_left, scores);
            multiply<Right::rows_of_k>(z, p_left, g_tile + first_column, stride);

            update_state<T, F>(state, bias, terms.gradient, keys, step_work, steps, first_column);

            normalise(z, columns, row_sums);
            Sums<2> y = tile_values<T, F>(queries, at(p.q, start), of(p.q), rows, first_column);
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) y.at[n][i] += gamma.at[n][i & 1] * z.at[n][i] + beta.at[n][i & 1];
            store_values(at(p.y, start), y, of(p.y), rows, first_column);
            if (thread < 16) lambda[(number + 1) % 2 * 16 + thread] = next_lambda;
        }
        if constexpr (!Pieces) break;
        const int end = piece.begin + piece.length;
        if (end == p.pieces.length) break;
        __syncthreads();  // the piece's tiles have been read
        first_token += piece.length;
        piece = p.pieces.from(sequence, end);
    }
    if (p.final_state.weight1) {
        for_state<F>(state, p.final_state.weight1 + pair * p.width * p.width, columns,
                     [](const float& value, float& place) { place = value; });
        columns.store(p.final_state.bias1 + pair * p.width, bias);
    }
}

}  // namespace

void ttt_linear_forward(const TttArguments& arguments, Type type) {
    const TttShape& shape = arguments.shape;
    if (ttt_linear_has_chunks(shape, type)) return ttt_linear_forward_by_chunks(arguments, type);
    if (!ttt_linear_has_columns(shape, type)) return ttt_linear_forward_general(arguments, type);
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        ForwardParameters<T> p{};
        p.q = ttt_rows<const T>(arguments.q);
        p.k = ttt_rows<const T>(arguments.k);
        p.v = ttt_rows<const T>(arguments.v);
        p.y = ttt_rows<T>(arguments.y);
        p.step_size = arguments.step_size;
        p.token_scale = arguments.token_scale;
        p.weight = arguments.start().weight1.fp32();
        p.bias = arguments.start().bias1.fp32();
        p.start_models = arguments.start_models();
        p.final_state = TttModels(arguments.final_state);
        p.norm_weight = arguments.inner.norm_weight.fp32();
        p.norm_bias = arguments.inner.norm_bias.fp32();
        p.saved = arguments.saved;
        p.pieces = TttPieces(arguments);
        p.mini_batches = arguments.mini_batches();
        p.interval = ttt_interval(p.mini_batches);
        p.heads = static_cast<int>(shape.heads);
        p.mini_batch = static_cast<int>(shape.mini_batch);
        p.width = static_cast<int>(shape.head_width);
        p.aligned = ttt_aligned(shape, p.q, p.k, p.v, p.y);
        for_padded_width<T>(shape.head_width, [&](auto padded) {
            constexpr int F = decltype(padded)::value;
            launch({"ttt_linear_forward", dim3(static_cast<unsigned>(arguments.pairs())), 2 * F,
                    ForwardShared<T, F>::bytes, arguments.stream},
                   !p.pieces.joined() ? ttt_linear_forward_kernel<T, F, true> : ttt_linear_forward_kernel<T, F, false>,
                   p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
