// What a forward pass of the delta rule on a GPU saves for its backward: the state before every chunk of tokens, from
// which the rest is computed again. Sizes only, so that memory can be planned without a GPU.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

constexpr std::int64_t delta_gpu_chunk = 64;  // tokens

constexpr std::int64_t delta_widest_key_on_gpu = 128;  // fk

inline std::int64_t delta_gpu_chunks(const DeltaShape& shape) {
    return (shape.length + delta_gpu_chunk - 1) / delta_gpu_chunk;
}

// Backend::delta_saved_count of a GPU: fp32 [B, H, chunks, fk, fv].
inline std::int64_t delta_gpu_saved_count(const DeltaShape& shape, Type) {
    return shape.batch * shape.heads * delta_gpu_chunks(shape) * shape.key_width * shape.value_width;
}

}  // namespace lockstep::kernels
