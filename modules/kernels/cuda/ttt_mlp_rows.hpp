// TTT-MLP on tensor cores: what is done with whole rows (tokens), LayerNorm, the inner loss and their backwards. A half
// warp works on a row of F features, so that eight warps work on all 16 at once, and a lane has the same features of
// the same row each time: what it leaves in memory for itself needs no barrier. Features from the true f to F are
// padding: they stay out of all means and come out as 0.
#pragma once

#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/ttt_mlp_tile.hpp"

namespace lockstep::kernels::cuda {

// Position of a mini-batch of a pair.
struct MlpPlace {
    std::int64_t token, step;  // its first row of q, k, v and their like, and its first step size
    int column, tokens;        // the head's first column
};
__device__ inline MlpPlace mlp_place(const TttMlpSizes& sizes, const TttPiece& piece, int pair, int number) {
    const int sequence = pair / sizes.heads, head = pair - sequence * sizes.heads;
    const std::int64_t start = static_cast<std::int64_t>(number) * sizes.mini_batch, rest = piece.length - start;
    const std::int64_t token = sequence * sizes.length + piece.begin + start;
    return {token, token * sizes.heads + head, head * sizes.width,
            static_cast<int>(rest < sizes.mini_batch ? rest : sizes.mini_batch)};
}

// A piece's mini-batches, and what lies before those of its states that are saved. A kernel without pieces reads all of
// it from its parameters.
struct MlpPiece : TttPiece {
    int count, group_count, saved_before;
};
template <bool Pieces, class T>
__device__ inline MlpPiece mlp_piece(const TttMlpTask<T>& task, const TttPiece& piece) {
    const TttMlpSizes& sizes = task.sizes;
    if constexpr (!Pieces) return {{0, task.pieces.length, false}, sizes.count, sizes.group_count, 0};
    const int count = (piece.length + sizes.mini_batch - 1) / sizes.mini_batch;
    return {piece, count, (count - 1) / sizes.group + 1, ttt_saved_before(piece, sizes.group * sizes.mini_batch)};
}
// The model that a piece starts from, and its number.
struct MlpStart {
    TttModels models;
    std::int64_t number;
};
template <class T>
__device__ inline MlpStart mlp_start(const TttMlpTask<T>& task, const TttPiece& piece, int pair) {
    return {ttt_choose(piece.carried, task.pieces.initial, task.start),
            piece.carried ? pair : pair % task.start_models};
}
// Where the state before a mini-batch is saved.
template <class T>
__device__ inline float* mlp_saved_state(const TttMlpTask<T>& task, const MlpPiece& piece, int pair, int number) {
    const TttMlpSizes& sizes = task.sizes;
    const int place = piece.saved_before + number / sizes.group - 1;
    return task.saved + (pair * (sizes.group_count - 1) + place) * sizes.kept_count();
}

// A lane's features of its row.
template <int F>
struct RowValues {
    static constexpr int count = F / 16;
    float at[count];
};

template <int F>
struct MlpRow {
    using Geometry = MlpGeometry<F>;
    using Values = RowValues<F>;
    static constexpr int count = Values::count, lanes = 16;
    static constexpr int piece = F == 64 ? 4 : 2, pieces = count / piece;  // neighbouring features
    int row, first;                                                        // this lane's row and first feature
    int width;                                                             // the true f
    float share;                                                           // 1 / f

    __device__ explicit MlpRow(const TttMlpSizes& sizes)
        : row(static_cast<int>(threadIdx.x) / lanes),
          first(lane_index() % lanes * piece),
          width(sizes.width),
          share(sizes.share) {}
    // Whether this warp has rows.
    __device__ static bool here() { return Geometry::warps == 8 || threadIdx.x < 8 * warp_width; }
    __device__ bool leads() const { return lane_index() % lanes == 0; }
    __device__ int feature(int i) const { return first + i / piece * lanes * piece + i % piece; }
    __device__ bool inside(int i) const { return feature(i) < width; }

    // From and to rows [16][F] in fp32; load_row: one row of F, as γ, β and c2 are for all tokens.
    __device__ Values load(const float* rows) const { return load_row(rows + row * F); }
    __device__ Values load_row(const float* from) const {
        Values values;
#pragma unroll
        for (int u = 0; u < pieces; ++u) {
            const auto pack = load_pack<piece>(from + first + u * lanes * piece);
#pragma unroll
            for (int i = 0; i < piece; ++i) values.at[u * piece + i] = pack.at[i];
        }
        return values;
    }
    __device__ void store(float* rows, const Values& values) const {
#pragma unroll
        for (int u = 0; u < pieces; ++u) {
            Pack<float, piece> pack;
#pragma unroll
            for (int i = 0; i < piece; ++i) pack.at[i] = values.at[u * piece + i];
            store_pack(rows + row * F + first + u * lanes * piece, pack);
        }
    }
    __device__ void add_to(float* rows, const Values& values) const {
        Values sums = load(rows);
#pragma unroll
        for (int i = 0; i < count; ++i) sums.at[i] += values.at[i];
        store(rows, sums);
    }
    // Of the warps' parts, in the order of the warps.
    __device__ Values partial_sum(const float* partial) const {
        Values sums = load_row(partial + row * Geometry::row_stride);
#pragma unroll Geometry::on_chip ? Geometry::warps : 3
        for (int w = 1; w < Geometry::warps; ++w) {
            const Values part = load_row(partial + (w * mlp_rows + row) * Geometry::row_stride);
#pragma unroll
            for (int i = 0; i < count; ++i) sums.at[i] += part.at[i];
        }
        return sums;
    }

    // Rows of q, k, v and their like, zeros beyond the last token and feature; and back.
    template <class T>
    __device__ Values load(const TttRows<T>& rows, const MlpPlace& place) const {
        const T* const from = rows.first + (place.token + row) * rows.stride + place.column + first;
        Values values;
#pragma unroll
        for (int i = 0; i < count; i += 2) {
            unsigned two = 0;
            if (row < place.tokens && inside(i))
                two = *reinterpret_cast<const unsigned*>(from + i / piece * lanes * piece + i % piece);
            values.at[i] = unpack_low<T>(two);
            values.at[i + 1] = unpack_high<T>(two);
        }
        return values;
    }
    template <class T>
    __device__ void store(const TttRows<T>& rows, const MlpPlace& place, const Values& values) const {
        T* const to = rows.first + (place.token + row) * rows.stride + place.column + first;
#pragma unroll
        for (int i = 0; i < count; i += 2)
            if (row < place.tokens && inside(i))
                *reinterpret_cast<unsigned*>(to + i / piece * lanes * piece + i % piece) =
                    pack_pair<T>(values.at[i], values.at[i + 1]);
    }
    // Brings rows of q, k, v and their like into the L2 cache.
    template <class T>
    __device__ void prefetch(const TttRows<T>& rows, const MlpPlace& place) const {
        constexpr int line = 128 / static_cast<int>(sizeof(T));
        const int feature = lane_index() % lanes * line;
        if (row < place.tokens && feature < width)
            prefetch_l2(rows.first + (place.token + row) * rows.stride + place.column + feature);
    }
    // To bf16 rows, as operands of products.
    __device__ void store(bf16* rows, const Values& values) const {
        bf16* const to = rows + row * Geometry::bf16_stride + first;
#pragma unroll
        for (int u = 0; u < pieces; ++u) {
            Pack<unsigned, piece / 2> pack;
#pragma unroll
            for (int i = 0; i < piece / 2; ++i)
                pack.at[i] = pack_pair<bf16>(values.at[u * piece + 2 * i], values.at[u * piece + 2 * i + 1]);
            store_pack(reinterpret_cast<unsigned*>(to + u * lanes * piece), pack);
        }
    }

    // What the rounding of the same values to bf16 rows loses.
    __device__ void store_rest(bf16* rows, Values values) const {
#pragma unroll
        for (int i = 0; i < count; ++i) values.at[i] -= to_float(from_float<bf16>(values.at[i]));
        store(rows, values);
    }

    template <class Term>
    __device__ float sum(Term&& term) const {  // of term(i) over the row
        float sum = term(0);
#pragma unroll
        for (int i = 1; i < count; ++i) sum += term(i);
        return lanes_sum<lanes>(sum);
    }
};

// z becomes X̂; returns 1/σ. The mean is subtracted before squaring: gradients consist of differences of nearly equal
// numbers.
template <int F>
__device__ inline float normalise_row(const MlpRow<F>& row, RowValues<F>& z) {
    const float mean = row.share * row.sum([&](int i) { return z.at[i]; });
#pragma unroll
    for (int i = 0; i < RowValues<F>::count; ++i) z.at[i] = row.inside(i) ? z.at[i] - mean : 0.0f;
    const float inverse = rsqrtf(fmaf(row.share, row.sum([&](int i) { return z.at[i] * z.at[i]; }), ttt_mlp_epsilon));
#pragma unroll
    for (int i = 0; i < RowValues<F>::count; ++i) z.at[i] *= inverse;
    return inverse;
}

// LNL2 of one row.
template <int F>
struct LossRow {
    RowValues<F> normalised, difference, gradient;  // X̂, D, G
    float inverse, projection;                      // 1/σ, ⟨U X̂⟩
};
template <int F>
__device__ inline LossRow<F> loss_row(const MlpRow<F>& row, const RowValues<F>& z, const RowValues<F>& target,
                                      const float* norm_weight, const float* norm_bias) {
    constexpr int count = RowValues<F>::count;
    LossRow<F> loss;
    loss.normalised = z;
    loss.inverse = normalise_row(row, loss.normalised);
    const RowValues<F> weight = row.load_row(norm_weight), bias = row.load_row(norm_bias);
    RowValues<F> u;
#pragma unroll
    for (int i = 0; i < count; ++i) {
        loss.difference.at[i] = fmaf(weight.at[i], loss.normalised.at[i], bias.at[i] - target.at[i]);
        u.at[i] = weight.at[i] * loss.difference.at[i];
    }
    const float mean = row.share * row.sum([&](int i) { return u.at[i]; });
    loss.projection = row.share * row.sum([&](int i) { return u.at[i] * loss.normalised.at[i]; });
#pragma unroll
    for (int i = 0; i < count; ++i)
        loss.gradient.at[i] =
            row.inside(i) ? (u.at[i] - mean - loss.normalised.at[i] * loss.projection) * loss.inverse : 0.0f;
    return loss;
}

// LayerNorm's backward: dZ from dY and X̂.
template <int F>
__device__ inline RowValues<F> norm_backward_row(const MlpRow<F>& row, const RowValues<F>& dy,
                                                 const RowValues<F>& normalised, float inverse,
                                                 const float* norm_weight) {
    constexpr int count = RowValues<F>::count;
    RowValues<F> u = row.load_row(norm_weight);
#pragma unroll
    for (int i = 0; i < count; ++i) u.at[i] *= dy.at[i];
    const float mean = row.share * row.sum([&](int i) { return u.at[i]; });
    const float projection = row.share * row.sum([&](int i) { return u.at[i] * normalised.at[i]; });
#pragma unroll
    for (int i = 0; i < count; ++i)
        u.at[i] = row.inside(i) ? (u.at[i] - mean - normalised.at[i] * projection) * inverse : 0.0f;
    return u;
}

// LNL2's backward: dgradient, dG, becomes dZ; ddifference receives dD = -dT, dnorm_weight the row's part of dγ, dU⊙D +
// dD⊙X̂.
template <int F>
__device__ inline void loss_backward_row(const MlpRow<F>& row, RowValues<F>& dgradient, RowValues<F>& ddifference,
                                         RowValues<F>& dnorm_weight, const LossRow<F>& loss, const float* norm_weight) {
    constexpr int count = RowValues<F>::count;
    const RowValues<F> weight = row.load_row(norm_weight);
    const float gradient_size = row.share * row.sum([&](int i) { return dgradient.at[i] * loss.gradient.at[i]; });
    RowValues<F> b;
#pragma unroll
    for (int i = 0; i < count; ++i) b.at[i] = dgradient.at[i] * loss.inverse;
    const float mean = row.share * row.sum([&](int i) { return b.at[i]; });
    const float along = row.share * row.sum([&](int i) { return b.at[i] * loss.normalised.at[i]; });
    RowValues<F> dx;
#pragma unroll
    for (int i = 0; i < count; ++i) {  // padding: γ, D and B are 0
        const float x = loss.normalised.at[i], du = b.at[i] - mean - x * along;
        ddifference.at[i] = weight.at[i] * du;
        dnorm_weight.at[i] = fmaf(du, loss.difference.at[i], ddifference.at[i] * x);
        dx.at[i] = weight.at[i] * (ddifference.at[i] - loss.difference.at[i] * along) - b.at[i] * loss.projection;
    }
    const float dx_mean = row.share * row.sum([&](int i) { return dx.at[i]; });
    const float dx_along = row.share * row.sum([&](int i) { return dx.at[i] * loss.normalised.at[i]; }) + gradient_size;
#pragma unroll
    for (int i = 0; i < count; ++i)
        dgradient.at[i] = row.inside(i) ? (dx.at[i] - dx_mean - loss.normalised.at[i] * dx_along) * loss.inverse : 0.0f;
}

}  // namespace lockstep::kernels::cuda
