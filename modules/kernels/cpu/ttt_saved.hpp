// What a TTT forward pass on a CPU keeps for its backward, without a backend.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"

namespace lockstep::kernels::cpu {

std::int64_t ttt_saved_count(const TttShape& shape);  // Backend::ttt_saved_count

}  // namespace lockstep::kernels::cpu
