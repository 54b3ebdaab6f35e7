// Sizes of what the delta rule keeps and works in on a GPU, so that memory can be planned without one. A forward pass
// saves the state before every chunk of tokens; backward computes the rest again.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

constexpr std::int64_t delta_gpu_chunk = 64;           // tokens
constexpr std::int64_t delta_widest_key_on_gpu = 128;  // fk

inline std::int64_t delta_gpu_chunks(const DeltaShape& shape) {
    return (shape.length + delta_gpu_chunk - 1) / delta_gpu_chunk;
}

// A block takes some columns of the values at a time.
constexpr std::int64_t delta_gpu_padded_key(std::int64_t key_width) {
    return key_width <= 64 ? 64 : 128;
}
constexpr std::int64_t delta_gpu_slice(std::int64_t padded_key, bool fp32) {
    return fp32 && padded_key > 64 ? 16 : 32;
}

// Bytes of the states of all chunks, [B, H, chunks, slices, padded fk, slice]: fp32, or bf16 with 16-bit types.
inline std::int64_t delta_gpu_state_bytes(const DeltaShape& shape, Type type) {
    const bool fp32 = type == Type::fp32;
    const std::int64_t key = delta_gpu_padded_key(shape.key_width), slice = delta_gpu_slice(key, fp32);
    const std::int64_t values = (shape.value_width + slice - 1) / slice * slice;
    return shape.batch * shape.heads * delta_gpu_chunks(shape) * key * values * (fp32 ? 4 : 2);
}

// Scratch memory of the kernels: the inverses of all chunks [B, H, chunks, 64, 64], in the states' type; backward also
// the gradients of the states, and where heads share keys those of every head's queries and keys, fp32 [N, H, fk].
struct DeltaGpuScratch {
    std::int64_t inverses = 0, dstates = 0, dkeys = 0;  // bytes, multiples of 256
    std::int64_t all() const { return inverses + dstates + 2 * dkeys; }
};
inline DeltaGpuScratch delta_gpu_scratch(const DeltaShape& shape, Type type) {
    const auto rounded = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const std::int64_t pairs = shape.batch * shape.heads;
    DeltaGpuScratch scratch;
    scratch.inverses =
        rounded(pairs * delta_gpu_chunks(shape) * delta_gpu_chunk * delta_gpu_chunk * (type == Type::fp32 ? 4 : 2));
    scratch.dstates = rounded(delta_gpu_state_bytes(shape, type));
    if (shape.heads > shape.key_heads) scratch.dkeys = rounded(pairs * shape.length * shape.key_width * 4);
    return scratch;
}

// Backend::delta_saved_count of a GPU.
inline std::int64_t delta_gpu_saved_count(const DeltaShape& shape, Type type) {
    return delta_gpu_state_bytes(shape, type) / 4;
}

}  // namespace lockstep::kernels
