// How much memory the operations of the CPU backend work in (scratch.hpp), without a backend: the operations ask here
// for what they reserve, and who plans memory asks the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels::cpu {

// Floats. Each kind grows to the largest that an operation asked for.
struct ScratchSize {
    std::int64_t of_thread = 0, shared = 0, kept = 0;
    void grow(const ScratchSize& other) {
        of_thread = std::max(of_thread, other.of_thread);
        shared = std::max(shared, other.shared);
        kept = std::max(kept, other.kept);
    }
    std::size_t bytes(int threads) const {
        return static_cast<std::size_t>(threads * of_thread + shared + kept) * sizeof(float);
    }
};

// type: fp32 or bf16.
ScratchSize attention_scratch(const AttentionShape& shape, Type type, bool backward);
ScratchSize ttt_scratch(const TttShape& shape, Type type, bool backward, int threads);
ScratchSize convolution_scratch(std::int64_t rows, std::int64_t width, std::int64_t taps, bool backward);
// Of sums over rows, `columns` of them: gradients of norms and biases.
ScratchSize row_sums_scratch(std::int64_t rows, std::int64_t columns);
// Of linear_gelu_backward with dbefore [rows, width].
ScratchSize gelu_product_scratch(std::int64_t rows, std::int64_t width, Type type);
std::int64_t ttt_saved_count(const TttShape& shape);  // Backend::ttt_saved_count

}  // namespace lockstep::kernels::cpu
