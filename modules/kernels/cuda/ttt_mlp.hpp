// Shared by the TTT-MLP kernels: sizes, what a kernel reads and writes, which kernels take a problem, and the general
// kernels' GELU and rows. Equations and symbols as in docs/ttt.md.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/cuda/ttt_pieces.hpp"

namespace lockstep::kernels::cuda {

struct TttMlpSizes {
    std::int64_t batch, length;
    std::int64_t part_count;               // fp32 of a TttPart
    int mini_batch, heads, width, hidden;  // b, H, f, 4f
    int group;                             // mini-batches between saved states (ttt_interval)
    int pair_count, count, group_count;    // pairs(), mini_batches(), groups of mini-batches
    float share;                           // 1 / f

    __host__ __device__ std::int64_t pairs() const { return batch * heads; }
    __host__ __device__ std::int64_t mini_batches() const { return (length + mini_batch - 1) / mini_batch; }
    __host__ __device__ std::int64_t kept_states() const { return (mini_batches() - 1) / group; }
    // W1 [f, 4f], c1 [4f], W2 [4f, f], c2 [f], one after the other.
    __host__ __device__ std::int64_t state_count() const {
        return 2 * static_cast<std::int64_t>(width) * hidden + hidden + width;
    }
    // Floats of a saved state: tensor-core kernels pad f to their fixed width.
    __host__ __device__ std::int64_t kept_count() const {
        const std::int64_t padded = width <= 64 ? 64 : width <= 96 ? 96 : width;
        return 8 * padded * padded + 5 * padded;
    }
};

// What a kernel reads and writes.
template <class T>
struct TttMlpTask {
    TttMlpSizes sizes;
    TttRows<T> q, k, v, dy, y, dq, dk, dv;
    const float *step_size, *token_scale;
    TttModels start;  // of pair mod start_models
    std::int64_t start_models;
    TttPieces pieces;
    TttModels final_state, dfinal;  // may be null
    const float *norm_weight, *norm_bias;
    float* saved;       // [pairs, saved states, kept_count()], in each kernel's own layout; may be null in forward
    float* dstep_size;  // overwritten
    float* parts;       // [pairs, part_count], a TttPart each
    float* work;        // [blocks, work_count]
    std::int64_t work_count;
};

inline TttMlpSizes ttt_mlp_sizes(const TttShape& shape) {
    TttMlpSizes sizes{};
    sizes.batch = shape.batch;
    sizes.length = shape.length;
    sizes.part_count = TttPart(shape).count;
    sizes.mini_batch = static_cast<int>(shape.mini_batch);
    sizes.heads = static_cast<int>(shape.heads);
    sizes.width = static_cast<int>(shape.head_width);
    sizes.hidden = static_cast<int>(shape.hidden());
    sizes.group = static_cast<int>(ttt_interval(sizes.mini_batches()));
    sizes.pair_count = static_cast<int>(sizes.pairs());
    sizes.count = static_cast<int>(sizes.mini_batches());
    sizes.group_count = static_cast<int>(sizes.kept_states()) + 1;
    sizes.share = 1.0f / static_cast<float>(sizes.width);
    LOCKSTEP_ASSERT(sizes.kept_count() == ttt_mlp_kept_floats(shape.head_width));
    return sizes;
}

template <class T>
TttMlpTask<T> ttt_mlp_task(const TttArguments& arguments) {
    TttMlpTask<T> task{};
    task.sizes = ttt_mlp_sizes(arguments.shape);
    task.q = ttt_rows<T>(arguments.q);
    task.k = ttt_rows<T>(arguments.k);
    task.v = ttt_rows<T>(arguments.v);
    task.dy = ttt_rows<T>(arguments.dy);
    task.y = ttt_rows<T>(arguments.y);
    task.dq = ttt_rows<T>(arguments.dq);
    task.dk = ttt_rows<T>(arguments.dk);
    task.dv = ttt_rows<T>(arguments.dv);
    task.step_size = arguments.step_size;
    task.token_scale = arguments.token_scale;
    task.start = TttModels(arguments.start());
    task.start_models = arguments.start_models();
    task.pieces = TttPieces(arguments);
    task.final_state = TttModels(arguments.final_state);
    task.dfinal = TttModels(arguments.dfinal);
    task.norm_weight = elements<float>(arguments.inner.norm_weight);
    task.norm_bias = elements<float>(arguments.inner.norm_bias);
    task.saved = arguments.saved;
    task.dstep_size = arguments.dstep_size;
    return task;
}

// Concurrent blocks, each on one (sequence, head) pair after another: only as many as run at a time need work memory.
inline std::int64_t ttt_mlp_blocks(const TttArguments& arguments) {
    return std::min<std::int64_t>(arguments.pairs(), arguments.multiprocessors);
}

// Whether a row's 16-bit elements, from an even column on, can be accessed two at a time.
inline bool ttt_mlp_in_pairs(const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.strided_data()) % 4 == 0 && tensor.stride() % 2 == 0;
}

// Block width F = 64 or 96 of the tensor-core kernels for this problem; 0 if they do not support it. They access two
// elements at a time. Backward must choose as forward did, whose states it reads: q, k and v decide, which both have.
inline int ttt_mlp_tile_width(const TttArguments& arguments, Type type) {
    const TttShape& shape = arguments.shape;
    if (type == Type::fp32 || shape.mini_batch > 16 || shape.head_width % 2 != 0 || shape.head_width > 96) return 0;
    for (const Tensor* tensor : {&arguments.q, &arguments.k, &arguments.v})
        if (!ttt_mlp_in_pairs(*tensor)) return 0;
    for (const Tensor* tensor : {&arguments.y, &arguments.dy, &arguments.dq, &arguments.dk, &arguments.dv})
        LOCKSTEP_ASSERT(tensor->empty() || ttt_mlp_in_pairs(*tensor));
    return shape.head_width <= 64 ? 64 : 96;
}

// ttt_mlp_general.cu: every type, width and mini-batch.
// Floats per block; summed: backward with documents.
std::int64_t ttt_mlp_general_work(const TttMlpSizes& sizes, bool backward, bool summed);
void ttt_mlp_forward_general(const TttArguments& arguments, Type type);
void ttt_mlp_backward_general(const TttArguments& arguments, Type type, float* parts, float* work);

// ttt_mlp_backward_tiles.cu: unless ttt_mlp_tile_width() is 0.
std::int64_t ttt_mlp_backward_tiles_work(const TttMlpSizes& sizes, int tile_width);  // floats per block
void ttt_mlp_backward_tiles(const TttArguments& arguments, Type type, float* parts, float* work);

// φ, φ' and φ'' at one place.
struct Gelu {
    float value, slope, curvature;
};
__device__ inline Gelu gelu_at(float x) {
    constexpr float scale = 0.7978845608028654f, cubic = 0.044715f;  // √(2/π)
    const float square = x * x;
    const float t = tanhf(scale * x * (1 + cubic * square));
    const float du = scale * (1 + 3 * cubic * square), ddu = scale * 6 * cubic * x;
    const float rest = 1 - t * t;
    return {0.5f * x * (1 + t), 0.5f * (1 + t) + 0.5f * x * rest * du, rest * (du + 0.5f * x * ddu - x * t * du * du)};
}

// Rows of f values, one per warp, in memory that only this warp uses meanwhile; each lane keeps to its columns,
// which are few: loops that the compiler unrolls would be most of the code.
constexpr float ttt_mlp_epsilon = 1e-6f;

template <class Term>
__device__ inline float row_mean(int width, int lane, Term&& term) {  // of term(column), in all lanes
    float sum = 0;
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width) sum += term(j);
    return warp_sum(sum) / static_cast<float>(width);
}

// z becomes X̂; returns 1/σ. The mean is subtracted before squaring: gradients consist of differences of nearly equal
// numbers.
__device__ inline float normalise_row(float* z, int width, int lane) {
    const float mean = row_mean(width, lane, [&](int j) { return z[j]; });
    const float variance = row_mean(width, lane, [&](int j) { return (z[j] - mean) * (z[j] - mean); });
    const float inverse = 1.0f / sqrtf(variance + ttt_mlp_epsilon);
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width) z[j] = (z[j] - mean) * inverse;
    return inverse;
}

// LNL2 at X̂: `difference` is the target T and becomes D, `gradient` becomes G; returns ⟨U X̂⟩.
__device__ inline float loss_row(const float* normalised, float inverse, float* difference, float* gradient,
                                 const float* norm_weight, const float* norm_bias, int width, int lane) {
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width)
        difference[j] = norm_weight[j] * normalised[j] + norm_bias[j] - difference[j];
    const float mean = row_mean(width, lane, [&](int j) { return norm_weight[j] * difference[j]; });
    const float projection =
        row_mean(width, lane, [&](int j) { return norm_weight[j] * difference[j] * normalised[j]; });
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width)
        gradient[j] = (norm_weight[j] * difference[j] - mean - normalised[j] * projection) * inverse;
    return projection;
}

// LayerNorm's backward: dz from dy.
__device__ inline void norm_backward_row(float* dz, const float* dy, const float* normalised, float inverse,
                                         const float* norm_weight, int width, int lane) {
    const float mean = row_mean(width, lane, [&](int j) { return norm_weight[j] * dy[j]; });
    const float projection = row_mean(width, lane, [&](int j) { return norm_weight[j] * dy[j] * normalised[j]; });
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width)
        dz[j] = (norm_weight[j] * dy[j] - mean - normalised[j] * projection) * inverse;
}

// LNL2's backward: dgradient is dG and becomes dZ, ddifference receives dD = -dT, normalised becomes the row's part of
// dγ, dU⊙D + dD⊙X̂.
__device__ inline void loss_backward_row(float* dgradient, float* ddifference, float* normalised,
                                         const float* difference, const float* gradient, float inverse,
                                         float projection, const float* norm_weight, int width, int lane) {
    const float mean = row_mean(width, lane, [&](int j) { return dgradient[j] * inverse; });
    const float along = row_mean(width, lane, [&](int j) { return dgradient[j] * inverse * normalised[j]; });
    const float size = row_mean(width, lane, [&](int j) { return dgradient[j] * gradient[j]; });
    const auto dnormalised = [&](int j) {  // dX̂; dD = γ dU is there already
        return norm_weight[j] * (ddifference[j] - difference[j] * along) - dgradient[j] * inverse * projection;
    };
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width)
        ddifference[j] = norm_weight[j] * (dgradient[j] * inverse - mean - normalised[j] * along);
    const float dx_mean = row_mean(width, lane, dnormalised);
    const float dx_along = row_mean(width, lane, [&](int j) { return dnormalised(j) * normalised[j]; });
#pragma unroll 1
    for (int j = lane; j < width; j += warp_width) {
        const float x = normalised[j], b = dgradient[j] * inverse;
        const float dz = (dnormalised(j) - dx_mean - x * (dx_along + size)) * inverse;
        normalised[j] = (b - mean - x * along) * difference[j] + ddifference[j] * x;
        dgradient[j] = dz;
    }
}

}  // namespace lockstep::kernels::cuda
