// The arithmetic of reductions, as NCCL does it: every partial result is rounded to the element type, and the average
// of floating-point values scales each by 1/ranks before the sum, that of integers divides the sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::emulation::nccl {

// result[i] = terms[0][i] op terms[1][i] op …, in this order. `result` may not be one of the terms.
void reduce(void* result, const std::vector<const void*>& terms, std::size_t count, std::int32_t type,
            std::int32_t operation);

}  // namespace lockstep::emulation::nccl
