// Values on the host between fp32 and the type of a tensor.
#pragma once

#include <cstdint>

#include "device/tensor.hpp"

namespace lockstep {

// `type`: fp32, bf16 or fp16. Rounded to nearest even.
void from_fp32(Type type, void* to, const float* from, std::int64_t count);
void to_fp32(float* to, Type type, const void* from, std::int64_t count);

}  // namespace lockstep
