// The interface between CudaBackend's operations of Gated DeltaNet (delta.cu) and their kernels: delta_*.cu. Equations
// and symbols as in docs/gated-deltanet.md, operations as in kernels/backend.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/error.hpp"
#include "kernels/backend.hpp"
#include "kernels/delta_gpu_sizes.hpp"

namespace lockstep::kernels::cuda {

struct DeltaArguments {
    DeltaShape shape;
    Tensor q, k, v, y;                  // of type T
    Tensor dy, dq, dk, dv;              // backward
    const float *log_decay, *strength;  // g, β [N, H]
    float *dlog_decay, *dstrength;      // backward
    const float* initial;               // [B, H, fk, fv], may be null
    float* final_state;                 // may be null
    const float* dfinal;                // may be null
    float* dinitial;                    // may be null
    void* saved;                        // S, delta_gpu_state_bytes; forward: null if no backward follows
    void* inverses;                     // (I + A)⁻¹ [B, H, chunks, 64, 64]
    void* dstates;                      // backward: dS behind each chunk, likewise
    float *head_dq, *head_dk;           // backward, where heads share keys: [N, H, fk]
    cudaStream_t stream;

    std::int64_t pairs() const { return shape.batch * shape.heads; }
    std::int64_t chunks() const { return delta_gpu_chunks(shape); }
};

// Rows of a tensor, and the elements from one to the next.
template <class T>
struct DeltaRows {
    T* first;
    std::int64_t stride;
};
template <class T>
DeltaRows<T> delta_rows(const Tensor& tensor) {
    if (tensor.empty()) return {};
    return {static_cast<T*>(tensor.strided_data()), tensor.stride()};
}

// Whether each head's part of a row, of `width` elements, starts and ends 16-byte aligned in all of these.
template <class T>
bool delta_aligned(std::int64_t width, std::initializer_list<Tensor> tensors) {
    const auto whole = [](std::int64_t elements) { return elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0; };
    bool aligned = whole(width);
    for (const Tensor& tensor : tensors)
        aligned =
            aligned && whole(tensor.stride()) && reinterpret_cast<std::uintptr_t>(tensor.strided_data()) % 16 == 0;
    return aligned;
}

// What the parameters of all these kernels have in common. Parameters: with elements of type T.
template <class T, class Parameters>
Parameters delta_parameters(const DeltaArguments& arguments) {
    const DeltaShape& shape = arguments.shape;
    Parameters p{};
    p.k = delta_rows<const T>(arguments.k);
    p.log_decay = arguments.log_decay;
    p.strength = arguments.strength;
    p.inverses = static_cast<decltype(p.inverses)>(arguments.inverses);
    p.length = shape.length;
    p.chunks = arguments.chunks();
    p.heads = static_cast<decltype(p.heads)>(shape.heads);
    p.key_heads = static_cast<decltype(p.key_heads)>(shape.key_heads);
    p.key_width = static_cast<decltype(p.key_width)>(shape.key_width);
    p.aligned = delta_aligned<T>(shape.key_width, {arguments.k});
    return p;
}

void delta_invert(const DeltaArguments& arguments, Type type);     // fills `inverses`
void delta_scan(const DeltaArguments& arguments, Type type);       // forward
void delta_scan_back(const DeltaArguments& arguments, Type type);  // fills `dstates` and dinitial
void delta_gradients(const DeltaArguments& arguments, Type type);  // the rest
void delta_add_heads(const DeltaArguments& arguments, Type type);  // head_dq, head_dk to dq, dk

}  // namespace lockstep::kernels::cuda
