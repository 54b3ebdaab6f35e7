// TTT-Linear backward: a block processes (sequence, head) pairs, each from its last mini-batch to its first. The
// forward saved W and c every few mini-batches; between two of them the states are recomputed first, rounded as the
// products read them, and then used in reverse. dW' and dc' stay in fp32 registers.
#include <algorithm>

#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_linear.hpp"
#include "kernels/cuda/ttt_pieces.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct BackwardParameters {
    TttRows<const T> q, k, v, dy;
    TttRows<T> dq, dk, dv;
    const float *step_size, *token_scale, *weight, *bias, *norm_weight, *norm_bias, *saved;
    float* dstep_size;
    float* parts;           // [pairs] as TttPart
    unsigned char* states;  // [blocks] of BackwardShared::block_bytes(interval)
    TttPart part;
    TttModels dfinal;  // may be null
    int start_models;  // `weight` and `bias`: of pair mod start_models
    TttPieces pieces;
    int pairs, mini_batches, interval, heads, mini_batch, width;
    bool aligned;
};

template <class T, int F>
struct BackwardShared {
    using Linear = TttLinear<T, F>;
    using Operand = typename Linear::Operand;
    // fp32 tiles are fetched on demand: double buffering would not fit.
    static constexpr int stages = std::is_same_v<T, float> ? 1 : 2;
    static constexpr int operands = (4 * stages + 2) * Linear::tile   // Q, K, V, dO; G, one that changes its use
                                    + (stages + 1) * Linear::square;  // Wᵀ; dWᵀ
    // Row sums; c; τ, λ of two mini-batches; dλ and de; γ, β, dc; each thread's parts of dγ and dβ, which registers
    // have no room for; transposes of each warp.
    static constexpr int floats = RowSums<F / 16>::floats + stages * F + 5 * 16 + 3 * F + 8 * Linear::threads +
                                  (stages == 1 ? Linear::warps * transpose_floats : 0);
    static constexpr std::size_t bytes = operands * sizeof(Operand) + floats * sizeof(float);
    // A block's device memory: a group's states, each Wᵀ, then c; dW during their recomputation.
    static constexpr std::size_t state_bytes = F * F * sizeof(Operand) + F * sizeof(float);
    __host__ __device__ static constexpr std::size_t block_bytes(std::int64_t interval) {
        return static_cast<std::size_t>(interval) * state_bytes + F * F * sizeof(float);
    }
};

template <class T, int F, bool Pieces>
struct Backward {
    using Linear = TttLinear<T, F>;
    using Shared = BackwardShared<T, F>;
    using Operand = typename Linear::Operand;
    static constexpr int tile = Linear::tile, stride = Linear::stride, square = Linear::square, stages = Shared::stages;

    const BackwardParameters<T>& p;
    // Shared memory
    Operand *tiles, *g_tile, *work_tile, *state_rows, *dstate_rows;
    float *sums_work, *bias_rows, *tau, *lambda, *step_work, *rows_of_f, *norm_work, *transpose_work;
    // This thread's place and this pair's
    int thread, warp, first_column, pair, head;
    TttPiece piece;                     // if Pieces
    int mini_batches;                   // of the piece
    std::int64_t first_token, step_at;  // its place in step_size
    TileColumns<2> columns;
    RowSums<F / 16> row_sums;
    // Gradients so far
    Sums<F / 8> dstate;
    float dtau[2];

    __device__ explicit Backward(const BackwardParameters<T>& parameters)
        : p(parameters),
          tiles(shared_memory<Operand>()),
          g_tile(tiles + 4 * stages * tile),
          work_tile(g_tile + tile),
          state_rows(work_tile + tile),
          dstate_rows(state_rows + stages * square),
          sums_work(reinterpret_cast<float*>(tiles + Shared::operands)),
          bias_rows(sums_work + RowSums<F / 16>::floats),
          tau(bias_rows + stages * F),
          lambda(tau + 16),
          step_work(lambda + 32),
          rows_of_f(step_work + 32),
          norm_work(rows_of_f + 3 * F),
          thread(static_cast<int>(threadIdx.x)),
          warp(thread / warp_width),
          first_column(16 * warp),
          columns{first_column, parameters.width},
          row_sums(sums_work, warp) {
        transpose_work = norm_work + 8 * Linear::threads + (stages == 1 ? warp * transpose_floats : 0);
    }

    __device__ int rows_of(int number) const {
        const int rest = (Pieces ? piece.length : p.pieces.length) - number * p.mini_batch;
        return rest < p.mini_batch ? rest : p.mini_batch;
    }
    // A mini-batch's rows of a tensor.
    template <class Element>
    __device__ Element* at(const TttRows<Element>& tensor, int number) const {
        return tensor.first + (first_token + static_cast<std::int64_t>(number) * p.mini_batch) * tensor.stride +
               head * p.width;
    }
    template <class Element>
    __device__ HeadRows of(const TttRows<Element>& tensor) const {
        return {tensor.stride, p.width, p.aligned};
    }
    __device__ static int stage_of(int number) { return stages == 1 ? 0 : number % 2; }
    __device__ Operand* tiles_of(int number) const { return tiles + stage_of(number) * 4 * tile; }
    __device__ const float* lambda_of(int number) const { return lambda + number % 2 * 16; }
    __device__ std::int64_t step_of(int number) const {
        return step_at + static_cast<std::int64_t>(number) * p.mini_batch * p.heads;
    }
    __device__ float fetch_lambda(int number) const {
        return thread < rows_of(number) ? p.step_size[step_of(number) + static_cast<std::int64_t>(thread) * p.heads]
                                        : 0.0f;
    }
    __device__ void set_lambda(int number, float value) {
        if (thread < 16) lambda[number % 2 * 16 + thread] = value;
    }
    __device__ unsigned char* state_at(int index) const {
        return p.states + blockIdx.x * Shared::block_bytes(p.interval) +
               static_cast<std::size_t>(index) * Shared::state_bytes;
    }

    // This warp's columns of γ (of: 0), β (1), dc (2).
    __device__ Columns<2> row_of(int of) const { return load_columns(rows_of_f + of * F, first_column); }
    __device__ void add_norm(const Columns<2>& dgamma, const Columns<2>& dbeta) {
        float* const place = norm_work + thread;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                place[(2 * n + i) * Linear::threads] += dgamma.at[n][i];
                place[(4 + 2 * n + i) * Linear::threads] += dbeta.at[n][i];
            }
    }

    // K and V of a mini-batch; on the way back also Q, dO and the state before it.
    __device__ void fetch(int number, bool all, int index) {
        const int rows = rows_of(number);
        Operand* const to = tiles_of(number);
        load_tile<T, F>(to + tile, at(p.k, number), of(p.k), rows);
        load_tile<T, F>(to + 2 * tile, at(p.v, number), of(p.v), rows);
        if (all) {
            load_tile<T, F>(to, at(p.q, number), of(p.q), rows);
            load_tile<T, F>(to + 3 * tile, at(p.dy, number), of(p.dy), rows);
            const auto* const state = reinterpret_cast<const Operand*>(state_at(index));
            const auto* const bias = reinterpret_cast<const float*>(state + F * F);
            constexpr int each = Vector16<Operand>::count, row_chunks = F / each;
            Operand* const rows_to = state_rows + stage_of(number) * square;
#pragma unroll 2
            for (int chunk = thread; chunk < F * row_chunks; chunk += Linear::threads) {
                const int row = chunk / row_chunks, column = chunk % row_chunks * each;
                copy_async_16(rows_to + row * stride + column, state + row * F + column);
            }
            if (thread < F / 4) copy_async_16(bias_rows + stage_of(number) * F + 4 * thread, bias + 4 * thread);
        }
        copy_async_commit();
    }

    // Recomputes the states before the mini-batches [begin, end), rounded, into `states`; one was saved at `begin`.
    __device__ void make_states(int begin, int end) {
        Sums<F / 8> state;
        Columns<2> bias;
        if (begin == 0) {
            const std::int64_t width = p.width, model = carried() ? pair : pair % p.start_models;
            load_model<F>(state, bias, (carried() ? p.pieces.initial.weight1 : p.weight) + model * width * width,
                          (carried() ? p.pieces.initial.bias1 : p.bias) + model * width, columns);
        } else {
            const int kept = (p.mini_batches - 1) / p.interval,
                      before = Pieces ? ttt_saved_before(piece, p.interval * p.mini_batch) : 0,
                      place = before + begin / p.interval - 1;
            const float* const from = p.saved + (static_cast<std::int64_t>(pair) * kept + place) * Linear::state_floats;
            load_weights<F>(state, from);
            bias = load_columns(from + F * F, first_column);
        }
        __syncthreads();  // whatever was read in shared memory has been read
        float next_lambda = fetch_lambda(begin);
        if (stages == 2 && begin + 1 < end) fetch(begin, false, 0);
        for (int number = begin; number < end; ++number) {
            auto* const to = reinterpret_cast<Operand*>(state_at(number - begin));
            store_rows<T, F>(to, F, state);
            store_columns(reinterpret_cast<float*>(to + F * F), bias, first_column);
            if (number + 1 == end) break;
            set_lambda(number, next_lambda);
            if constexpr (stages == 1) {
                __syncthreads();
                fetch(number, false, 0);
                store_rows<T, F>(state_rows, stride, state);
            }
            copy_async_wait<0>();
            __syncthreads();
            if (stages == 2 && number + 2 < end) fetch(number + 1, false, 0);
            if (number + 2 < end) next_lambda = fetch_lambda(number + 1);
            const Operand* const keys = tiles_of(number) + tile;
            const int rows = rows_of(number);
            const TileSteps steps{tau, lambda_of(number), rows};
            LossTerms<2> terms;
            terms.normal = broadcast(bias);
            Left<Operand, F / 16> left;
            load_left(left, keys, stride);
            multiply_state<T, F>(terms.normal, left, state, state_rows);
            terms.difference = take_target<T, F>(keys, keys + tile, at(p.k, number), at(p.v, number), of(p.k), of(p.v),
                                                 rows, first_column);
            loss_gradient(terms, row_of(0), row_of(1), columns, row_sums);
            update_state<T, F>(state, bias, terms.gradient, keys, work_tile, steps, first_column);
        }
    }

    __device__ void mini_batch(int number) {
        const int rows = rows_of(number);
        const Operand* const queries = tiles_of(number);
        const Operand *const keys = queries + tile, *const values = keys + tile, *const dys = values + tile;
        const Operand* const rows_of_state = state_rows + stage_of(number) * square;
        const TileSteps steps{tau, lambda_of(number), rows};
        const float* const bias = bias_rows + stage_of(number) * F + first_column;

        // Recompute the forward: G, Z̄.
        LossTerms<2> terms;
        Sums<2> z, scores, dread;  // dread: K dW' + dc'
        const Columns<2> dbias = row_of(2);
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                terms.normal.at[n][i] = z.at[n][i] = bias[Sums<2>::column(n, i)];
                dread.at[n][i] = dbias.at[n][i & 1];
            }
        Left<Operand, F / 16> left;
        load_left(left, keys, stride);
        multiply<Right::rows_of_n>(terms.normal, left, rows_of_state + first_column * stride, stride);
        multiply<Right::rows_of_n>(dread, left, dstate_rows + first_column * stride, stride);
        load_left(left, queries, stride);
        multiply<Right::rows_of_n>(z, left, rows_of_state + first_column * stride, stride);
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, keys, stride);
        terms.difference =
            take_target<T, F>(keys, values, at(p.k, number), at(p.v, number), of(p.k), of(p.v), rows, first_column);
        loss_gradient(terms, row_of(0), row_of(1), columns, row_sums);
        store_tile<T, F>(g_tile, terms.gradient, first_column);
        __syncwarp(all_lanes);
        Sums<2> negative = step_tile(steps);  // -P
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                scores.at[n][i] += 1.0f;
                negative.at[n][i] *= -scores.at[n][i];
            }
        Left<Operand, 1> small, negative_transposed;
        to_left(small, negative);
        to_left_transposed(negative_transposed, negative, transpose_work);
        multiply<Right::rows_of_k>(z, small, g_tile + first_column, stride);

        // dZ̄, in `z`.
        Columns<2> dgamma, dbeta;
        dgamma.clear();
        dbeta.clear();
        norm_backward(z, tile_values<T, F>(dys, at(p.dy, number), of(p.dy), rows, first_column), dgamma, dbeta,
                      row_of(0), columns, row_sums);
        add_norm(dgamma, dbeta);
        store_tile<T, F>(work_tile, z, first_column);
        add_to_bias(z);
        __syncthreads();  // G and dZ̄ are whole

        load_left(left, work_tile, stride);
        Sums<2> dq = tile_values<T, F>(dys, at(p.dy, number), of(p.dy), rows, first_column);
        multiply<Right::rows_of_k>(dq, left, rows_of_state + first_column, stride);
        Sums<2> dstep, dscores = step_tile(steps);  // dE, dS
        dstep.clear();
        multiply<Right::rows_of_n>(dstep, left, g_tile, stride);
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                dscores.at[n][i] *= -dstep.at[n][i];
                dstep.at[n][i] = Sums<2>::column(n, i) <= Sums<2>::row(i) ? -dstep.at[n][i] * scores.at[n][i] : 0.0f;
            }
        if (warp == 0) steps_backward(step_work, dtau, dstep, steps);
        to_left(small, dscores);
        multiply<Right::rows_of_k>(dq, small, keys + first_column, stride);
        store_values(at(p.dq, number), dq, of(p.dq), rows, first_column);

        load_left(left, g_tile, stride);
        Sums<2> dk;
        dk.clear();
        multiply<Right::rows_of_k>(dk, left, dstate_rows + first_column, stride);  // R
        const int row = lane_index() / 4;
        const float last[2] = {-steps.last(row), -steps.last(row + 8)};
        float de[2] = {};  // first Σ G⊙(K dW' + dc')
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                dk.at[n][i] *= last[i / 2];
                de[i / 2] += terms.gradient.at[n][i] * dread.at[n][i];
                dread.at[n][i] *= last[i / 2];  // becomes dG
            }
        to_left_transposed(small, dscores, transpose_work);
        multiply<Right::rows_of_k>(dk, small, queries + first_column, stride);
        multiply<Right::rows_of_k>(dread, negative_transposed, work_tile + first_column, stride);
        load_left_transposed(small, work_tile + first_column, stride);
        multiply<Right::rows_of_k>(dstate, small, queries, stride);

        // dZ, in `dread`.
        Sums<2> dtarget;  // -dT
        dgamma.clear();
        dbeta.clear();
        loss_gradient_backward(dread, dtarget, dgamma, dbeta, terms, row_of(0), columns, de, row_sums);
        add_norm(dgamma, dbeta);
        store_tile<T, F>(work_tile, dread, first_column);
        store_rows_of_target(dtarget, dk, number, rows);
        __syncthreads();  // dZ is whole
        load_left(left, work_tile, stride);
        multiply<Right::rows_of_k>(dk, left, rows_of_state + first_column, stride);
        store_values(at(p.dk, number), dk, of(p.dk), rows, first_column);
        load_left_transposed(small, work_tile + first_column, stride);
        multiply<Right::rows_of_k>(dstate, small, keys, stride);
        add_to_bias(dread);
        if (warp == 0) {
            de[0] = -de[0];
            de[1] = -de[1];
            last_step_backward(p.dstep_size + step_of(number), p.heads, dtau, de, steps, step_work);
        }
        store_rows<T, F>(dstate_rows, stride, dstate);
    }

    __device__ void add_to_bias(const Sums<2>& dz) {
        Columns<2> sum;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) sum.at[n][i] = dz.at[n][i] + dz.at[n][i + 2];
        sum_over_rows(sum);
        if (lane_index() < 4)
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i) rows_of_f[2 * F + columns.column(n, i)] += sum.at[n][i];
    }

    // dV = dT, dK -= dT, from -dT.
    __device__ void store_rows_of_target(const Sums<2>& dtarget, Sums<2>& dk, int number, int rows) {
        Sums<2> dv;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                dv.at[n][i] = -dtarget.at[n][i];
                dk.at[n][i] += dtarget.at[n][i];
            }
        store_values(at(p.dv, number), dv, of(p.dv), rows, first_column);
    }

    __device__ void whole_pair(int number_of_pair) {
        pair = number_of_pair;
        head = pair % p.heads;
        __syncthreads();  // the pair before has been read
        if (thread < F) {
            const bool inside = thread < p.width;
            rows_of_f[thread] = inside ? p.norm_weight[static_cast<std::int64_t>(head) * p.width + thread] : 0.0f;
            rows_of_f[2 * F + thread] =
                inside && p.dfinal.bias1 ? p.dfinal.bias1[static_cast<std::int64_t>(pair) * p.width + thread] : 0.0f;
            rows_of_f[F + thread] = inside ? p.norm_bias[static_cast<std::int64_t>(head) * p.width + thread] : 0.0f;
        }
        for (int i = 0; i < 8; ++i) norm_work[i * Linear::threads + thread] = 0;
        dstate.clear();
        if (p.dfinal.weight1)
            for_state<F>(dstate, p.dfinal.weight1 + static_cast<std::int64_t>(pair) * p.width * p.width, columns,
                         [](float& value, const float& place) { value = place; });
        dtau[0] = dtau[1] = 0;
        if constexpr (Pieces) {
            pieces_of_pair();
        } else {
            mini_batches = p.mini_batches;
            first_token = static_cast<std::int64_t>(pair / p.heads) * p.pieces.length;
            step_at = first_token * p.heads + head;
            whole_piece();
            hand_over(part() + p.part.weight1, part() + p.part.bias1, false);
        }
        write_part();
    }

    __device__ float* part() const {
        return p.parts + static_cast<std::int64_t>(pair) * p.part.count;
    }
    __device__ bool carried() const {
        return Pieces && piece.carried;
    }
    __device__ void enter(const TttPiece& entered) {
        piece = entered;
        mini_batches = (piece.length + p.mini_batch - 1) / p.mini_batch;
        first_token = static_cast<std::int64_t>(pair / p.heads) * p.pieces.length + piece.begin;
        step_at = first_token * p.heads + head;
    }

    // Each piece's gradient goes to the model that it started from; whoever has a value makes it 0 for the next one.
    __device__ void pieces_of_pair() {
        const std::int64_t model = static_cast<std::int64_t>(pair) * p.width;
        float* const initial = p.pieces.dinitial.weight1 ? p.pieces.dinitial.weight1 + model * p.width : nullptr;
        float* const initial_bias = initial ? p.pieces.dinitial.bias1 + model : nullptr;
        bool summed = false, handed_back = false;
        for (int end = p.pieces.length; end > 0; end = piece.begin) {
            enter(p.pieces.before(pair / p.heads, end));
            whole_piece();
            if (piece.carried)
                hand_over(initial, initial_bias, false);
            else
                hand_over(part() + p.part.weight1, part() + p.part.bias1, summed);
            handed_back = handed_back || piece.carried;
            summed = summed || !piece.carried;
            dstate.clear();
            if (lane_index() < 4)
#pragma unroll
                for (int n = 0; n < 2; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i) rows_of_f[2 * F + columns.column(n, i)] = 0;
        }
        if (!summed) hand_over(part() + p.part.weight1, part() + p.part.bias1, false);
        if (initial && !handed_back) hand_over(initial, initial_bias, false);
    }

    // dW and dc to, or added to, a model in the tensors' layout.
    __device__ void hand_over(float* weight, float* bias, bool add) {
        for_state<F>(dstate, weight, columns,
                     [=](const float& value, float& place) { place = add ? place + value : value; });
        if (lane_index() < 4)
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (columns.inside(n, i)) {
                        const int column = columns.column(n, i);
                        bias[column] = rows_of_f[2 * F + column] + (add ? bias[column] : 0.0f);
                    }
    }

    __device__ void whole_piece() {
        for (int group = (mini_batches - 1) / p.interval; group >= 0; --group) {
            const int begin = group * p.interval, after = begin + p.interval;
            const int end = after < mini_batches ? after : mini_batches;
            auto* const waiting = reinterpret_cast<float*>(state_at(p.interval));
            keep_weights<F>(waiting, dstate);  // its registers are needed
            make_states(begin, end);
            load_weights<F>(dstate, waiting);
            __syncthreads();  // the states are written, and shared memory is free
            float next_lambda = fetch_lambda(end - 1);
            if (stages == 2) fetch(end - 1, true, end - 1 - begin);
            if (end == mini_batches) store_rows<T, F>(dstate_rows, stride, dstate);
            for (int number = end - 1; number >= begin; --number) {
                set_lambda(number, next_lambda);
                if constexpr (stages == 1) {
                    __syncthreads();
                    fetch(number, true, number - begin);
                }
                copy_async_wait<0>();
                __syncthreads();
                if (number > begin) {
                    if (stages == 2) fetch(number - 1, true, number - 1 - begin);
                    next_lambda = fetch_lambda(number - 1);
                }
                mini_batch(number);
            }
        }
    }

    __device__ void write_part() {
        float* const to = part();
        Columns<2> dgamma, dbeta;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                dgamma.at[n][i] = norm_work[(2 * n + i) * Linear::threads + thread];
                dbeta.at[n][i] = norm_work[(4 + 2 * n + i) * Linear::threads + thread];
            }
        sum_over_rows(dgamma);
        sum_over_rows(dbeta);
        const int lane = lane_index();
        if (lane < 4)
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (columns.inside(n, i)) {
                        to[p.part.norm_weight + columns.column(n, i)] = dgamma.at[n][i];
                        to[p.part.norm_bias + columns.column(n, i)] = dbeta.at[n][i];
                    }
        if (warp == 0 && lane % 4 == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r)
                if (lane / 4 + 8 * r < p.mini_batch) to[p.part.token_scale + lane / 4 + 8 * r] = dtau[r];
    }
};

template <class T, int F, bool Pieces>
__global__ void __launch_bounds__(2 * F) ttt_linear_backward_kernel(BackwardParameters<T> p) {
    Backward<T, F, Pieces> backward(p);
    if (backward.thread < 16)
        backward.tau[backward.thread] = backward.thread < p.mini_batch ? p.token_scale[backward.thread] : 0.0f;
    for (int pair = static_cast<int>(blockIdx.x); pair < p.pairs; pair += static_cast<int>(gridDim.x))
        backward.whole_pair(pair);
}

}  // namespace

void ttt_linear_backward(const TttArguments& arguments, Type type) {
    const TttShape& shape = arguments.shape;
    if (ttt_linear_has_chunks(shape, type)) return ttt_linear_backward_by_chunks(arguments, type);
    if (!ttt_linear_has_columns(shape, type)) return ttt_linear_backward_general(arguments, type);
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        BackwardParameters<T> p{};
        p.part = TttPart(shape);
        p.q = ttt_rows<const T>(arguments.q);
        p.k = ttt_rows<const T>(arguments.k);
        p.v = ttt_rows<const T>(arguments.v);
        p.dy = ttt_rows<const T>(arguments.dy);
        p.dq = ttt_rows<T>(arguments.dq);
        p.dk = ttt_rows<T>(arguments.dk);
        p.dv = ttt_rows<T>(arguments.dv);
        p.step_size = arguments.step_size;
        p.token_scale = arguments.token_scale;
        p.weight = arguments.start().weight1.fp32();
        p.bias = arguments.start().bias1.fp32();
        p.start_models = static_cast<int>(arguments.start_models());
        p.dfinal = TttModels(arguments.dfinal);
        p.norm_weight = arguments.inner.norm_weight.fp32();
        p.norm_bias = arguments.inner.norm_bias.fp32();
        p.saved = arguments.saved;
        p.dstep_size = arguments.dstep_size;
        p.pairs = static_cast<int>(arguments.pairs());
        p.pieces = TttPieces(arguments);
        p.mini_batches = static_cast<int>(arguments.mini_batches());
        p.interval = static_cast<int>(ttt_interval(p.mini_batches));
        p.heads = static_cast<int>(shape.heads);
        p.mini_batch = static_cast<int>(shape.mini_batch);
        p.width = static_cast<int>(shape.head_width);
        p.aligned = ttt_aligned(shape, p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv);
        for_padded_width<T>(shape.head_width, [&](auto padded) {
            constexpr int F = decltype(padded)::value;
            using Shared = BackwardShared<T, F>;
            // More blocks than fit on the GPU would only need more memory for their states.
            const std::int64_t blocks = std::min<std::int64_t>(p.pairs, 4 * arguments.multiprocessors);
            const std::size_t part_bytes =
                (static_cast<std::size_t>(arguments.pairs() * p.part.count) * sizeof(float) + 255) / 256 * 256;
            auto* const memory = static_cast<unsigned char*>(
                arguments.scratch(part_bytes + static_cast<std::size_t>(blocks) * Shared::block_bytes(p.interval)));
            p.parts = reinterpret_cast<float*>(memory);
            p.states = memory + part_bytes;
            launch(
                {"ttt_linear_backward", dim3(static_cast<unsigned>(blocks)), 2 * F, Shared::bytes, arguments.stream},
                !p.pieces.joined() ? ttt_linear_backward_kernel<T, F, true> : ttt_linear_backward_kernel<T, F, false>,
                p);
        });
        ttt_add_parts(arguments, p.parts);
    });
}

}  // namespace lockstep::kernels::cuda
