// What attention's kernels take, for models to be checked against.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

inline constexpr std::int64_t widest_head_on_gpu = 256;  // columns

}  // namespace lockstep::kernels
