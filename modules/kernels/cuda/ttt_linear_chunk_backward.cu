// TTT-Linear backward by chunks: a block processes a (sequence, head) pair from its last chunk to its first. The
// forward saved W and c at the start of each. dW' and dc' stay in fp32, in registers or, where these have no room, in
// memory.
//
// With H = -e⊙G, everything that a mini-batch i gets from later ones enters its T_i = K_i dW' + dc' + Σ_{j>i} ((K_i
// Q_jᵀ + 1) dZ̄_j + (K_i K_jᵀ + 1) dZ_j), of which de_i = -Σ G⊙T_i and dG_i = -e⊙T_i - P_iiᵀ dZ̄_i.
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_linear_chunk.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
struct BackwardParameters {
    TttRows<const T> q, k, v, dy;
    TttRows<T> dq, dk, dv;
    const float *step_size, *token_scale, *weight, *bias, *norm_weight, *norm_bias;  // the model: read with documents
    const unsigned char* saved;                                                      // [pairs, chunks] states
    float* dstep_size;
    float* parts;    // [pairs] as TttPart
    float* waiting;  // [pairs] of BackwardShared::waiting_fours a thread
    TttPart part;
    TttModels dfinal;  // may be null
    TttPieces pieces;
    int length, chunks, heads, width, mini_batch;
    bool aligned;
};

template <class T, int F, bool Whole>
struct BackwardShared {
    using Chunk = TttChunk<T, F, Whole>;
    // Kept in device memory because registers are full: X̂ (later -dT), and dW'.
    static constexpr int waiting_fours = F / 8 + ChunkState<F>::parts * ChunkState<F>::own;
    // Q, K, V, dO and then dZ̄, -e⊙G, G and then dZ; W, dW'
    static constexpr int operands = 6 * Chunk::chunk + 2 * Chunk::square;
    // Each thread's parts of dγ and dβ, which registers have no room for; c, dc', γ, β; τ, λ; dλ and de of each warp.
    static constexpr int norm_floats = 4 * Chunk::blocks * Chunk::threads;
    static constexpr int floats =
        norm_floats + ChunkBias<F>::floats + 4 * F + 16 + Chunk::rows + 32 * Chunk::mini_batches;
    static constexpr std::size_t bytes = operands * sizeof(bf16) + floats * sizeof(float);
};

template <class T, int F, bool Whole, bool Pieces>
struct Backward {
    using Chunk = TttChunk<T, F, Whole>;
    using Shared = BackwardShared<T, F, Whole>;
    using Lane = ChunkLane<T, F, Whole>;
    using Rows = Sums<F / 8>;
    static constexpr int tile = Chunk::tile, N = F / 8;

    static constexpr bool keeps = F <= 64;  // D and -dT in registers, which have no room for wider heads

    const BackwardParameters<T>& p;
    const Lane lane;
    // Shared memory
    bf16 *queries, *keys;
    T* values;
    bf16 *dreads, *steps_tiles, *gradients, *weight, *dweight;
    float *norm_work, *exists, *bias, *gamma, *beta, *tau, *lambda, *step_work;
    ChunkBias<F> dbias;
    // This thread's place
    int thread, warp, pair, head, mini_batch, width, first_token;
    TttPiece piece;  // if Pieces
    // The chunk
    ChunkTokens tokens;
    int count, chunk_token;  // mini-batches; the first token's row
    int rows, own_token;     // of this warp's mini-batch: tokens, and the first one's place in the chunk
    // Gradients so far
    ChunkState<F> dstate;
    float dtau[2];

    __device__ explicit Backward(const BackwardParameters<T>& parameters)
        : p(parameters),
          lane(parameters.width,
               reinterpret_cast<float*>(shared_memory<bf16>() + Shared::operands) + Shared::norm_floats),
          queries(shared_memory<bf16>()),
          keys(queries + Chunk::chunk),
          values(reinterpret_cast<T*>(keys + Chunk::chunk)),
          dreads(keys + 2 * Chunk::chunk),
          steps_tiles(dreads + Chunk::chunk),
          gradients(steps_tiles + Chunk::chunk),
          weight(gradients + Chunk::chunk),
          dweight(weight + Chunk::square),
          norm_work(reinterpret_cast<float*>(dweight + Chunk::square)),
          exists(norm_work + Shared::norm_floats),
          bias(exists + F),
          gamma(bias + F),
          beta(gamma + F),
          tau(beta + F),
          lambda(tau + 16),
          step_work(lambda + Chunk::rows),
          dbias{step_work + 32 * Chunk::mini_batches},
          thread(static_cast<int>(threadIdx.x)),
          warp(lane.warp),
          pair(static_cast<int>(blockIdx.x)),
          head(pair % p.heads),
          mini_batch(Whole ? 16 : p.mini_batch),
          width(lane.width),
          first_token(pair / p.heads * p.length) {}

    template <class Element>
    __device__ ChunkRows<Element> rows_from(const TttRows<Element>& tensor) const {
        return {tensor.first + static_cast<std::int64_t>(chunk_token) * tensor.stride + head * width, tensor.stride,
                width, p.aligned};
    }
    __device__ TileSteps steps() const { return {tau, lambda + 16 * warp, rows}; }
    // Values of this thread that wait in memory, four at a time: `place` counts these.
    __device__ float* waiting(int place) const {
        return p.waiting + static_cast<std::int64_t>(pair) * (4 * Shared::waiting_fours * Chunk::threads) +
               4 * (place * Chunk::threads + thread);
    }
    template <int Blocks>
    __device__ void put_aside(int place, const Sums<Blocks>& kept) {
#pragma unroll
        for (int n = 0; n < Blocks; ++n) {
            const float(&from)[4] = kept.at[n];
            store16(waiting(place + n), Vector16<float>{{from[0], from[1], from[2], from[3]}});
        }
    }
    template <int Blocks>
    __device__ void take_back(int place, Sums<Blocks>& kept) {
#pragma unroll
        for (int n = 0; n < Blocks; ++n) {
            const Vector16<float> four = load16(waiting(place + n));
#pragma unroll
            for (int i = 0; i < 4; ++i) kept.at[n][i] = four.at[i];
        }
    }

    __device__ void enter(int number) {
        const int first = number * Chunk::mini_batches * mini_batch;
        tokens = {(Pieces ? piece.length : p.length) - first, mini_batch};
        count = tokens.mini_batches();
        rows = tokens.rows(warp);
        own_token = warp * mini_batch;
        chunk_token = first_token + first + (Pieces ? piece.begin : 0);
    }
    // The tiles of the chunk that was entered, and the state at its start.
    __device__ void fetch(int number) {
        load_chunk<Chunk, Whole>(queries, rows_from(p.q), tokens);
        load_chunk<Chunk, Whole>(keys, rows_from(p.k), tokens);
        load_chunk<Chunk, Whole>(values, rows_from(p.v), tokens);
        load_chunk<Chunk, Whole>(reinterpret_cast<T*>(dreads), rows_from(p.dy), tokens);
        if (Pieces && number == 0) {
            const std::int64_t model = static_cast<std::int64_t>(piece.carried ? pair : head) * width;
            load_chunk_model<F>(weight, bias, (piece.carried ? p.pieces.initial.weight1 : p.weight) + model * width,
                                (piece.carried ? p.pieces.initial.bias1 : p.bias) + model, width);
        } else {
            const int before = Pieces ? ttt_saved_before(piece, Chunk::mini_batches * mini_batch) : 0;
            load_chunk_state<F>(weight, bias, p.saved, static_cast<std::int64_t>(pair) * p.chunks + before + number);
        }
        copy_async_commit();
        if (thread < Chunk::rows) {
            const int token = tokens.token<Whole>(thread);
            lambda[thread] =
                token >= 0 ? p.step_size[static_cast<std::int64_t>(chunk_token + token) * p.heads + head] : 0.0f;
        }
    }

    // Adds to this thread's parts of dγ and dβ of its columns in block n.
    __device__ void add_norm(int n, const float (&dgamma)[2], const float (&dbeta)[2]) {
        float* const place = norm_work + 4 * (n * Chunk::threads + thread);
        const Vector16<float> before = load16(place);
        store16(place, Vector16<float>{{before.at[0] + dgamma[0], before.at[1] + dgamma[1], before.at[2] + dbeta[0],
                                        before.at[3] + dbeta[1]}});
    }

    __device__ typename Lane::Two difference(int n, int r, const typename Lane::Two& x) const {
        const auto key = lane.two(keys + warp * tile, rows_from(p.k), own_token, rows, n, r);
        const auto value = lane.two(values + warp * tile, n, r);
        return lane.difference(gamma, beta, n, x, key, value);
    }

    // The forward's keys' side: G and -e⊙G of all mini-batches, X̂ of this warp's in z.
    __device__ __forceinline__ void repeat_forward(Rows& z, ChunkLoss& loss) {
        Left<bf16, F / 16> left;
        load_rows<F>(left, keys + warp * tile);
        z = lane.broadcast(bias);
        add_product<Right::rows_of_k, F>(z, left, weight);
#pragma unroll 1
        for (int i = 0; i < warp; ++i) {
            Left<bf16, 1> scores;
            to_left(scores, scores_of<F>(left, keys + i * tile));
            barrier_of_warps();  // -e⊙G of mini-batch i is whole
            add_product<Right::rows_of_k, F>(z, scores, steps_tiles + i * tile);
        }
        const float last[2] = {-steps().last(lane.row), -steps().last(lane.row + 8)};
        lane.loss_gradient(
            z, loss, gamma, [&](int n, int r, const auto& x) { return difference(n, r, x); },
            [&](int n, int r, const auto& g) {
                lane.store(gradients + warp * tile, n, r, g.at[0], g.at[1]);
                lane.store(steps_tiles + warp * tile, n, r, last[r] * g.at[0], last[r] * g.at[1]);
            });
#pragma unroll 1
        for (int i = warp; i < count; ++i) barrier_of_warps();
    }

    __device__ typename Lane::Two output_gradient(int n, int r) const {  // dO, until dZ̄ takes its place
        return lane.two(reinterpret_cast<const T*>(dreads + warp * tile), n, r);
    }

    // LayerNorm's backward: z, the norm's input Z̄, becomes dZ̄.
    __device__ __forceinline__ void norm_backward(Rows& z) {
        float inverse[2], sum[2][2] = {};  // Σu, ΣuX̂; u = γ⊙dO
        lane.centre(z, inverse);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto scale = lane.of_columns(gamma, n);
            float dgamma[2] = {}, dbeta[2] = {};
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto dy = output_gradient(n, r);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float x = z.at[n][2 * r + i] *= inverse[r], u = scale.at[i] * dy.at[i];
                    sum[0][r] += u;
                    sum[1][r] += u * x;
                    dgamma[i] += dy.at[i] * x;
                    dbeta[i] += dy.at[i];
                }
            }
            add_norm(n, dgamma, dbeta);
        }
        quad_sums(sum);
        float offset[2], slope[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            offset[r] = -lane.share * sum[0][r] * inverse[r];
            slope[r] = -lane.share * sum[1][r] * inverse[r];
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto scale = lane.of_columns(gamma, n);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto dy = output_gradient(n, r);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& value = z.at[n][2 * r + i];
                    value =
                        lane.masked(n, i, fmaf(value, slope[r], fmaf(scale.at[i] * dy.at[i], inverse[r], offset[r])));
                }
            }
        }
    }

    // The queries' side of this warp's mini-batch: dQ, dZ̄ in place of dO, the steps' gradient but for de. -Pᵀ and dSᵀ
    // are left for later.
    __device__ __forceinline__ void queries_side(Left<bf16, 1>& negative_transposed,
                                                 Left<bf16, 1>& dscores_transposed) {
        const bf16 *const own_keys = keys + warp * tile, *const own_gradients = gradients + warp * tile;
        bf16* const own_dreads = dreads + warp * tile;
        Left<bf16, F / 16> left;
        Left<bf16, 1> small;
        load_rows<F>(left, queries + warp * tile);
        Rows z = lane.broadcast(bias);
        add_product<Right::rows_of_k, F>(z, left, weight);
#pragma unroll 1
        for (int i = 0; i < warp; ++i) {
            to_left(small, scores_of<F>(left, keys + i * tile));
            add_product<Right::rows_of_k, F>(z, small, steps_tiles + i * tile);
        }
        const Sums<2> scores = scores_of<F>(left, own_keys), e = step_tile(steps());
        Sums<2> dscores;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) dscores.at[n][i] = -e.at[n][i] * scores.at[n][i];
        to_left(small, dscores);
        to_left_transposed(negative_transposed, dscores, nullptr);
        add_product<Right::rows_of_k, F>(z, small, own_gradients);

        norm_backward(z);
        Rows dq;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto dy = output_gradient(n, r);
                lane.store(own_dreads, n, r, z.at[n][2 * r], z.at[n][2 * r + 1]);  // dZ̄
                dq.at[n][2 * r] = dy.at[0];
                dq.at[n][2 * r + 1] = dy.at[1];
            }
        to_left(left, z);
        Columns<N> sums;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) sums.at[n][i] = z.at[n][i] + z.at[n][i + 2];
        lane.template column_sums<false>(dbias.part(warp), sums);
        add_product<Right::rows_of_n, F>(dq, left, weight);
#pragma unroll 1
        for (int i = 0; i < warp; ++i) {
            dscores.clear();
            add_product<Right::rows_of_n, F>(dscores, left, steps_tiles + i * tile);
            to_left(small, dscores);
            add_product<Right::rows_of_k, F>(dq, small, keys + i * tile);
        }
        Sums<2> dstep;  // dE
        dstep.clear();
        add_product<Right::rows_of_n, F>(dstep, left, own_gradients);
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                dscores.at[n][i] = -e.at[n][i] * dstep.at[n][i];
                dstep.at[n][i] = Sums<2>::column(n, i) <= Sums<2>::row(i) ? -dstep.at[n][i] * scores.at[n][i] : 0.0f;
            }
        steps_backward(step_work + 32 * warp, dtau, dstep, steps());
        to_left(small, dscores);
        to_left_transposed(dscores_transposed, dscores, nullptr);
        add_product<Right::rows_of_k, F>(dq, small, own_keys);
        lane.store_to(rows_from(p.dq), own_token, rows, dq);
    }

    // LNL2's backward of this warp's mini-batch: `dread`, in: T; dZ goes to its tile; `target` receives -dT; de.
    __device__ __forceinline__ void loss_backward(Rows& dread, Rows& target, float (&de)[1][2], const Rows& normal,
                                                  const ChunkLoss& loss, const Left<bf16, 1>& negative_transposed) {
        const float last[2] = {-steps().last(lane.row), -steps().last(lane.row + 8)};
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto scale = lane.of_columns(gamma, n);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto d = difference(n, r, {{normal.at[n][2 * r], normal.at[n][2 * r + 1]}});
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& read = dread.at[n][2 * r + i];
                    if constexpr (keeps) target.at[n][2 * r + i] = d.at[i];
                    const float u = scale.at[i] * d.at[i];
                    de[0][r] -= lane.gradient_of(loss, n, r, i, u, normal.at[n][2 * r + i]) * read;
                    read *= last[r];
                }
            }
        }
        add_product<Right::rows_of_k, F>(dread, negative_transposed, dreads + warp * tile);  // dG

        float sum[2][2] = {};  // ΣdG, ΣdG⊙X̂
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float d = dread.at[n][i] = lane.masked(n, i & 1, dread.at[n][i]);
                sum[0][i / 2] += d;
                sum[1][i / 2] += d * normal.at[n][i];
            }
        quad_sums(sum);
        quad_sums(de);
        float mean[2], slope[2], dx_sum[2][2] = {};  // ⟨B⟩, ⟨B X̂⟩; ΣdX̂, ΣdX̂⊙X̂
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            mean[r] = lane.share * sum[0][r] * loss.inverse[r];
            slope[r] = lane.share * sum[1][r] * loss.inverse[r];
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto scale = lane.of_columns(gamma, n);
            float dgamma[2] = {}, dbeta[2] = {};
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                typename Lane::Two d{{target.at[n][2 * r], target.at[n][2 * r + 1]}};
                if constexpr (!keeps) d = difference(n, r, {{normal.at[n][2 * r], normal.at[n][2 * r + 1]}});
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float x = normal.at[n][2 * r + i];
                    const float b = dread.at[n][2 * r + i] * loss.inverse[r];
                    const float du = b - mean[r] - x * slope[r];
                    const float dd = scale.at[i] * du;
                    const float dx = scale.at[i] * (dd - d.at[i] * slope[r]) - b * loss.projection[r];
                    target.at[n][2 * r + i] = dd;
                    dread.at[n][2 * r + i] = dx;
                    dx_sum[0][r] += dx;
                    dx_sum[1][r] += dx * x;
                    dgamma[i] += du * d.at[i] + dd * x;
                    dbeta[i] += dd;
                }
            }
            add_norm(n, dgamma, dbeta);
            if constexpr (!keeps) put_aside(n, reinterpret_cast<const Sums<1>&>(target.at[n]));
        }
        quad_sums(dx_sum);
        Columns<N> sums;
        sums.clear();
        float offset[2], factor[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            offset[r] = -lane.share * dx_sum[0][r] * loss.inverse[r];
            // ΣdG⊙G = λ dλ: both are what follows if G grows as a whole.
            const int token = lane.row + 8 * r;
            const float dlambda = step_work[32 * warp + token] + tau[rows - 1] * de[0][r];
            factor[r] = -lane.share * (dx_sum[1][r] + steps().lambda[token] * dlambda) * loss.inverse[r];
        }
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float dz[2];
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    dz[i] = lane.masked(n, i,
                                        fmaf(normal.at[n][2 * r + i], factor[r],
                                             fmaf(dread.at[n][2 * r + i], loss.inverse[r], offset[r])));
                lane.store(gradients + warp * tile, n, r, dz[0], dz[1]);
                sums.at[n][0] += dz[0];
                sums.at[n][1] += dz[1];
            }
        lane.template column_sums<true>(dbias.part(warp), sums);
    }

    // dK of this warp's mini-batch, in `dk`: -dT so far. dZ lies where G was.
    __device__ __forceinline__ void keys_side(Rows& dk, const Left<bf16, 1>& dscores_transposed) {
        Left<bf16, F / 16> left;
        Left<bf16, 1> small;
        const auto add = [&](const bf16* of, const bf16* rows_of) {  // (left ofᵀ) rows_of
            Sums<2> product;
            product.clear();
            add_product<Right::rows_of_n, F>(product, left, of);
            to_left(small, product);
            add_product<Right::rows_of_k, F>(dk, small, rows_of);
        };
        add_product<Right::rows_of_k, F>(dk, dscores_transposed, queries + warp * tile);
        load_rows<F>(left, gradients + warp * tile);
        add_product<Right::rows_of_n, F>(dk, left, weight);
#pragma unroll 1
        for (int i = 0; i < warp; ++i) add(steps_tiles + i * tile, keys + i * tile);
        load_rows<F>(left, steps_tiles + warp * tile);
        add_product<Right::rows_of_n, F>(dk, left, dweight);
#pragma unroll 1
        for (int i = warp + 1; i < count; ++i) {
            add(dreads + i * tile, queries + i * tile);
            add(gradients + i * tile, keys + i * tile);
        }
        lane.store_to(rows_from(p.dk), own_token, rows, dk);
    }

    // All of a chunk's mini-batch that this warp does, with the barriers of the block.
    __device__ __forceinline__ void mini_batch_of_warp() {
        Rows normal, dread, target;
        ChunkLoss loss;
        Left<bf16, 1> negative_transposed, dscores_transposed;
        float de[1][2] = {};
        repeat_forward(normal, loss);
        put_aside(0, normal);
        queries_side(negative_transposed, dscores_transposed);
        barrier_of_warps();  // dZ̄ is whole
        Left<bf16, F / 16> left;
        load_rows<F>(left, keys + warp * tile);
        dread = lane.broadcast(dbias.whole);
        add_product<Right::rows_of_k, F>(dread, left, dweight);
#pragma unroll 1
        for (int i = warp + 1; i < count; ++i) {
            Left<bf16, 1> scores;
            to_left(scores, scores_of<F>(left, queries + i * tile));
            add_product<Right::rows_of_k, F>(dread, scores, dreads + i * tile);
        }
#pragma unroll 1
        for (int i = count - 1; i > warp; --i) {
            Left<bf16, 1> scores;
            to_left(scores, scores_of<F>(left, keys + i * tile));
            barrier_of_warps();  // dZ of mini-batch i is whole
            add_product<Right::rows_of_k, F>(dread, scores, gradients + i * tile);
        }
        take_back(0, normal);
        loss_backward(dread, target, de, normal, loss, negative_transposed);
#pragma unroll 1
        for (int i = 0; i <= warp; ++i) barrier_of_warps();
        last_step_backward(p.dstep_size + static_cast<std::int64_t>(chunk_token + own_token) * p.heads + head, p.heads,
                           dtau, de[0], steps(), step_work + 32 * warp);
        if constexpr (!keeps) take_back(0, target);
        lane.template store_to<true>(rows_from(p.dv), own_token, rows, target);
        keys_side(target, dscores_transposed);
    }

    __device__ __forceinline__ void chunk() {
        if (warp < count)
            mini_batch_of_warp();
        else
#pragma unroll 1
            for (int i = 0; i < 2 * count + 1; ++i) barrier_of_warps();
#pragma unroll
        for (int k = 0; k < ChunkState<F>::parts; ++k) take_back(N + k * ChunkState<F>::own, dstate.at[k]);
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            dstate.add(queries + i * tile, dreads + i * tile);
            dstate.add(keys + i * tile, gradients + i * tile);
        }
    }

    __device__ __forceinline__ void whole_pair() {
        if (thread < F) {
            const std::int64_t at = static_cast<std::int64_t>(head) * width + thread;
            gamma[thread] = thread < width ? p.norm_weight[at] : 0.0f;
            exists[thread] = thread < width ? 1.0f : 0.0f;
            beta[thread] = thread < width ? p.norm_bias[at] : 0.0f;
        }
        if (thread < 16) tau[thread] = thread < mini_batch ? p.token_scale[thread] : 0.0f;
#pragma unroll
        for (int n = 0; n < N; ++n) store16(norm_work + 4 * (n * Chunk::threads + thread), Vector16<float>{});
        const std::int64_t columns = static_cast<std::int64_t>(pair) * width;
        dbias.load(p.dfinal.bias1 ? p.dfinal.bias1 + columns : nullptr, width);
        if (p.dfinal.weight1)
            dstate.load(p.dfinal.weight1 + columns * width, width);
        else
            dstate.clear();
        dtau[0] = dtau[1] = 0;
        if constexpr (Pieces) {
            pieces_of_pair();
        } else {
            whole_piece(p.chunks);
            dstate.store(part() + p.part.weight1, width);
            dbias.store(part() + p.part.bias1, width);
        }
        write_part();
    }

    __device__ float* part() const {
        return p.parts + static_cast<std::int64_t>(pair) * p.part.count;
    }

    // A model's gradient in the tensors' layout, by the threads that have its values; add_to makes these 0.
    __device__ void clear(float* weight_to, float* bias_to) {
        dstate.for_each([&](float&, int row, int column) {
            if (row < width && column < width) weight_to[row * width + column] = 0;
        });
        if (thread < width) bias_to[thread] = 0;
    }
    __device__ void add_to(float* weight_to, float* bias_to) {
        dstate.for_each([&](float& value, int row, int column) {
            if (row < width && column < width) weight_to[row * width + column] += value;
            value = 0;
        });
        if (thread < width) bias_to[thread] += dbias.whole[thread];
        if (thread < F) dbias.whole[thread] = 0;
    }

    // Each piece's gradient goes to the model that it started from.
    __device__ __forceinline__ void pieces_of_pair() {
        const std::int64_t model = static_cast<std::int64_t>(pair) * width;
        const TttModels& initial = p.pieces.dinitial;
        const int chunk_tokens = Chunk::mini_batches * mini_batch;
        clear(part() + p.part.weight1, part() + p.part.bias1);
        if (initial.weight1) clear(initial.weight1 + model * width, initial.bias1 + model);
#pragma unroll 1
        for (int end = p.length; end > 0; end = piece.begin) {
            piece = p.pieces.before(pair / p.heads, end);
            whole_piece((piece.length + chunk_tokens - 1) / chunk_tokens);
            add_to(piece.carried ? initial.weight1 + model * width : part() + p.part.weight1,
                   piece.carried ? initial.bias1 + model : part() + p.part.bias1);
        }
    }

    __device__ __forceinline__ void whole_piece(int chunks) {
        for (int number = chunks - 1; number >= 0; --number) {
            enter(number);
            fetch(number);
            dstate.publish(dweight);
#pragma unroll
            for (int k = 0; k < ChunkState<F>::parts; ++k) put_aside(N + k * ChunkState<F>::own, dstate.at[k]);
            copy_async_wait<0>();
            __syncthreads();  // the tiles have arrived, dW' is whole
            chunk();
            __syncthreads();  // all has been read
            dbias.add(count);
        }
    }

    __device__ void write_part() {
        float* const to = part();
        if (lane_index() % 4 == 0) {
            step_work[32 * warp + lane.row] = dtau[0];
            step_work[32 * warp + lane.row + 8] = dtau[1];
        }
        __syncthreads();
        if (thread < 16 && thread < mini_batch) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < Chunk::mini_batches; ++w) sum += step_work[32 * w + thread];
            to[p.part.token_scale + thread] = sum;
        }
        if (thread < width) {  // a column: all threads that hold it
            const float* const from = norm_work + 4 * (thread / 8 * Chunk::threads + thread % 8 / 2) + thread % 2;
            float dgamma = 0, dbeta = 0;
            for (int of = 0; of < Chunk::threads; of += 4) {
                dgamma += from[4 * of];
                dbeta += from[4 * of + 2];
            }
            to[p.part.norm_weight + thread] = dgamma;
            to[p.part.norm_bias + thread] = dbeta;
        }
    }
};

template <class T, int F, bool Whole, bool Pieces>
__global__ void __launch_bounds__(TttChunk<T, F, Whole>::threads)
    ttt_linear_chunk_backward_kernel(BackwardParameters<T> p) {
    Backward<T, F, Whole, Pieces>(p).whole_pair();
}

}  // namespace

void ttt_linear_backward_by_chunks(const TttArguments& arguments, Type type) {
    const TttShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        if constexpr (sizeof(T) == 2) {
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
            p.weight = arguments.inner.weight1.fp32();
            p.bias = arguments.inner.bias1.fp32();
            p.dfinal = TttModels(arguments.dfinal);
            p.pieces = TttPieces(arguments);
            p.norm_weight = arguments.inner.norm_weight.fp32();
            p.norm_bias = arguments.inner.norm_bias.fp32();
            p.saved = reinterpret_cast<const unsigned char*>(arguments.saved);
            p.dstep_size = arguments.dstep_size;
            p.length = static_cast<int>(shape.length);
            p.chunks = static_cast<int>(ttt_linear_chunks(shape));
            p.heads = static_cast<int>(shape.heads);
            p.width = static_cast<int>(shape.head_width);
            p.mini_batch = static_cast<int>(shape.mini_batch);
            p.aligned = ttt_aligned(shape, p.q, p.k, p.v, p.dy, p.dq, p.dk, p.dv);
            for_chunk_kernel(shape, p.aligned, [&](auto padded, auto whole, auto pieces) {
                constexpr int F = decltype(padded)::value;
                constexpr bool Whole = decltype(whole)::value, Pieces = decltype(pieces)::value;
                using Shared = BackwardShared<T, F, Whole>;
                const auto floats = [&](std::int64_t each) {
                    return (static_cast<std::size_t>(arguments.pairs() * each) * sizeof(float) + 255) / 256 * 256;
                };
                auto* const memory = static_cast<unsigned char*>(arguments.scratch(
                    floats(p.part.count) + floats(Shared::waiting_fours * 4 * TttChunk<T, F, Whole>::threads)));
                p.parts = reinterpret_cast<float*>(memory);
                p.waiting = reinterpret_cast<float*>(memory + floats(p.part.count));
                launch({"ttt_linear_chunk_backward", dim3(static_cast<unsigned>(arguments.pairs())),
                        TttChunk<T, F, Whole>::threads, Shared::bytes, arguments.stream},
                       ttt_linear_chunk_backward_kernel<T, F, Whole, Pieces>, p);
            });
            ttt_add_parts(arguments, p.parts);
        }
    });
}

}  // namespace lockstep::kernels::cuda
