// The seam between CudaBackend's TTT operations (ttt.cu) and their kernels: ttt_linear_*.cu, ttt_mlp_*.cu,
// ttt_decode.cu. Equations and symbols as in docs/ttt.md, operations as in kernels/backend.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/backend.hpp"

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
    float* saved;     // ttt_…_saved_count() elements; forward: null where no backward follows
    cudaStream_t stream;
    int multiprocessors;
    // Device memory for one operation, 256-byte aligned; to be asked for once an operation.
    std::function<void*(std::size_t)> scratch;

    std::int64_t pairs() const { return shape.batch * shape.heads; }
    std::int64_t mini_batches() const { return (shape.length + shape.mini_batch - 1) / shape.mini_batch; }
    std::int64_t stride() const { return shape.heads * shape.head_width; }  // of a row of q
};

// Never 0: an empty tensor says that no backward follows.
std::int64_t ttt_linear_saved_count(const TttShape& shape);
void ttt_linear_forward(const TttArguments& arguments, Type type);
void ttt_linear_backward(const TttArguments& arguments, Type type);

std::int64_t ttt_mlp_saved_count(const TttShape& shape);
void ttt_mlp_forward(const TttArguments& arguments, Type type);
void ttt_mlp_backward(const TttArguments& arguments, Type type);

// Token by token, linear and mlp; y, q, k, v, step_size, token_scale, inner's norm, shape and stream are read.
void ttt_decode(const TttArguments& arguments, Type type, const TttState& state, std::int64_t position);

}  // namespace lockstep::kernels::cuda
