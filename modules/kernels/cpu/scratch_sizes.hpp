// What the mixers' operations on the CPU keep to work in: floats over all threads, forward and backward.
#pragma once

#include "kernels/backend.hpp"

namespace lockstep::kernels::cpu {

std::int64_t attention_scratch_floats(const AttentionShape& shape, Type type, int threads);
std::int64_t ttt_scratch_floats(const TttShape& shape, Type type, int threads);

}  // namespace lockstep::kernels::cpu
