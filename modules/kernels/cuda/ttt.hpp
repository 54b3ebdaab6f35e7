// The interface between CudaBackend's TTT operations (ttt.cu) and their kernels: ttt_linear_*.cu, ttt_mlp_*.cu,
// ttt_decode.cu. Equations and symbols as in docs/ttt.md, operations as in kernels/backend.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/error.hpp"
#include "kernels/backend.hpp"
#include "kernels/ttt_gpu_saved.hpp"

namespace lockstep::kernels::cuda {

struct TttArguments {
    TttShape shape;
    Tensor q, k, v;  // [N, H·f] of type T
    Tensor y;        // forward
    Tensor dy, dq, dk, dv;
    const float* step_size;    // λ [N, H]
    const float* token_scale;  // τ [b]
    float* dstep_size;         // overwritten
    float* dtoken_scale;       // +=
    TttInner inner;
    TttInner dinner;  // +=
    TttCarry initial, final_state, dinitial, dfinal;
    float* saved;  // ttt_gpu_saved_count() elements; forward: null if no backward follows
    cudaStream_t stream;
    int multiprocessors;
    std::size_t shared_memory;  // bytes that a block can have; backward
    // Device scratch memory, 256-byte aligned; to be requested once per operation.
    std::function<void*(std::size_t)> scratch;

    std::int64_t pairs() const { return shape.batch * shape.heads; }
    std::int64_t mini_batches() const { return (shape.length + shape.mini_batch - 1) / shape.mini_batch; }
    // Pair i starts from model i mod start_models() of start(): its own, or its head's learned one. With documents that
    // is what pieces start from (ttt_pieces.hpp), but for those that go on from `initial`.
    bool starts_learned() const { return initial.empty() || !shape.documents.joined(); }
    TttCarry start() const {
        return starts_learned() ? TttCarry{inner.weight1, inner.bias1, inner.weight2, inner.bias2} : initial;
    }
    std::int64_t start_models() const { return starts_learned() ? shape.heads : pairs(); }
};

// The rows of a tensor [N, H·f]: its first, and the elements from one to the next. Of an empty tensor: null.
template <class T>
struct TttRows {
    T* first;
    int stride;
};
template <class T>
TttRows<T> ttt_rows(const Tensor& tensor) {
    if (tensor.empty()) return {};
    LOCKSTEP_ASSERT(tensor.stride() < (std::int64_t{1} << 24));  // a chunk of rows fits an int
    return {static_cast<T*>(tensor.strided_data()), static_cast<int>(tensor.stride())};
}
// Whether each head's part of a row starts and ends 16-byte aligned in all of these.
template <class... T>
bool ttt_aligned(const TttShape& shape, const TttRows<T>&... rows) {
    const auto whole = [](std::int64_t bytes) { return bytes % 16 == 0; };
    bool aligned = true;
    ((aligned = aligned && whole(shape.head_width * static_cast<std::int64_t>(sizeof(T))) &&
                whole(rows.stride * static_cast<std::int64_t>(sizeof(T))) &&
                whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(rows.first)))),
     ...);
    return aligned;
}

// One model per pair, in the order of TttCarry; null if there is none.
struct TttModels {
    float *weight1, *bias1, *weight2, *bias2;

    TttModels() = default;
    explicit TttModels(const TttCarry& carry) {
        const auto data = [](const Tensor& tensor) { return tensor.empty() ? nullptr : tensor.fp32(); };
        weight1 = data(carry.weight1);
        bias1 = data(carry.bias1);
        weight2 = data(carry.weight2);
        bias2 = data(carry.bias2);
    }
};

// A (sequence, head) pair's part of the gradients of learned tensors, one fp32 array: offsets of dW1 [f, g], dc1 [g],
// dW2 [g, f], dc2 [f] (mlp only), dγ [f], dβ [f], dτ [b].
struct TttPart {
    std::int64_t weight1, bias1, weight2, bias2, norm_weight, norm_bias, token_scale, count;

    TttPart() = default;
    explicit TttPart(const TttShape& shape) {
        const std::int64_t f = shape.head_width, g = shape.hidden();
        weight1 = 0;
        bias1 = weight1 + f * g;
        weight2 = bias1 + g;
        bias2 = weight2 + (shape.mlp ? g * f : 0);
        norm_weight = bias2 + (shape.mlp ? f : 0);
        norm_bias = norm_weight + f;
        token_scale = norm_bias + f;
        count = (token_scale + shape.mini_batch + 3) / 4 * 4;
    }
};
// Adds parts [B, H, count] to dinner and dtoken_scale, in the order of the sequences; if sequences start from states of
// their own, the model's parts are copied to dinitial. With documents the kernels have written dinitial.
void ttt_add_parts(const TttArguments& arguments, const float* parts);

void ttt_linear_forward(const TttArguments& arguments, Type type);
void ttt_linear_backward(const TttArguments& arguments, Type type);

void ttt_mlp_forward(const TttArguments& arguments, Type type);
void ttt_mlp_backward(const TttArguments& arguments, Type type);

// Token by token, linear and mlp; reads y, q, k, v, step_size, token_scale, inner's norm, shape and stream.
void ttt_decode(const TttArguments& arguments, Type type, const TttState& state, std::int64_t position);

}  // namespace lockstep::kernels::cuda
