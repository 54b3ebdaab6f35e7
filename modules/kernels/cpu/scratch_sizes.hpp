// Scratch sizes of the mixers' CPU operations: floats over all threads, forward and backward.
#pragma once

#include "kernels/backend.hpp"

namespace lockstep::kernels::cpu {

std::int64_t attention_scratch_floats(const AttentionShape& shape, Type type, int threads);
std::int64_t ttt_scratch_floats(const TttShape& shape, Type type, int threads);
std::int64_t delta_scratch_floats(const DeltaShape& shape, Type type, int threads);  // with the gates

std::int64_t convolution_scratch_floats(std::int64_t rows, std::int64_t width, std::int64_t taps, bool backward);
// Of sums over rows with this many columns: gradients of norms and biases.
std::int64_t row_sums_scratch_floats(std::int64_t rows, std::int64_t columns);
// Of the products of a linear layer with these sizes, forward and backward.
std::int64_t linear_scratch_floats(std::int64_t rows, std::int64_t in, std::int64_t out, Type type);
// Of linear_gelu_backward with dbefore [rows, width].
std::int64_t gelu_product_scratch_floats(std::int64_t rows, std::int64_t width, Type type);
std::int64_t ttt_saved_count(const TttShape& shape);      // Backend::ttt_saved_count
std::int64_t delta_saved_count(const DeltaShape& shape);  // Backend::delta_saved_count

}  // namespace lockstep::kernels::cpu
