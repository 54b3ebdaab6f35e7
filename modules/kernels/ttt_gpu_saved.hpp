// What a TTT forward pass on a GPU saves for its backward: the inner model's states at the start of some mini-batches,
// from which those between are recomputed. Sizes only, so that memory can be planned without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

// Mini-batches between saved states: the square root of all, which balances the saved states (fp32, of every sequence)
// and the recomputed ones (of running blocks); at most 16, so that the latter stay in L2.
inline std::int64_t ttt_interval(std::int64_t mini_batches) {
    std::int64_t interval = 1;
    while (interval < 16 && interval * interval < mini_batches) ++interval;
    return interval;
}

// Floats of a saved state, W and c, for all kernels of TTT-Linear: padded to whole tiles.
inline std::int64_t ttt_linear_kept_floats(std::int64_t head_width) {
    std::int64_t padded = head_width;
    for (const std::int64_t width : {128, 96, 64, 32, 16})
        if (head_width <= width) padded = width;
    return padded * padded + padded;
}

// TTT-Linear in 16 bit takes four mini-batches at once, a chunk, and keeps the state before each chunk as products read
// it: W as bf16, c as fp32, padded to whole tiles. Mini-batches of fewer than four tokens form no chunks: they change W
// too much for its rounding, and a state for every few tokens would take most of the memory.
constexpr int ttt_chunk_mini_batches = 4;
inline bool ttt_linear_has_chunks(const TttShape& shape, Type type) {
    return type != Type::fp32 && shape.mini_batch >= 4 && shape.mini_batch <= 16 && shape.head_width <= 96;
}
inline std::int64_t ttt_linear_chunks(const TttShape& shape) {
    const std::int64_t tokens = ttt_chunk_mini_batches * shape.mini_batch;
    return (shape.length + tokens - 1) / tokens;
}
inline std::int64_t ttt_linear_chunk_floats(std::int64_t head_width) {
    const std::int64_t padded = head_width <= 32 ? 32 : head_width <= 64 ? 64 : 96;
    return padded * padded / 2 + padded;
}

// Of TTT-MLP, W1 [f, 4f], c1, W2 [4f, f], c2: tensor-core kernels pad f to their fixed width.
inline std::int64_t ttt_mlp_kept_floats(std::int64_t head_width) {
    const std::int64_t padded = head_width <= 64 ? 64 : head_width <= 96 ? 96 : head_width;
    return 8 * padded * padded + 5 * padded;
}

// Backend::ttt_saved_count of a GPU. Never 0: an empty tensor means that no backward follows.
inline std::int64_t ttt_gpu_saved_count(const TttShape& shape, Type type) {
    const std::int64_t mini_batches = (shape.length + shape.mini_batch - 1) / shape.mini_batch;
    const std::int64_t kept = (mini_batches - 1) / ttt_interval(mini_batches), pairs = shape.batch * shape.heads;
    std::int64_t each = 0;  // of a sequence and head
    if (shape.mlp)
        each = kept * ttt_mlp_kept_floats(shape.head_width);
    else if (ttt_linear_has_chunks(shape, type))
        each = ttt_linear_chunks(shape) * ttt_linear_chunk_floats(shape.head_width);
    else
        each = kept * ttt_linear_kept_floats(shape.head_width);
    return std::max<std::int64_t>(pairs * each, 1);
}

}  // namespace lockstep::kernels
