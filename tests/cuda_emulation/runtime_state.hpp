// What the parts of the runtime API share.
#pragma once

#include <cuda_runtime.h>

#include "cuda_emulation/streams.hpp"

namespace lockstep::emulation {

cudaError_t returned(cudaError_t error);  // noted for cudaGetLastError

// nullptr stands for a default stream; anything else must be a stream that exists.
bool is_valid(cudaStream_t stream);

}  // namespace lockstep::emulation
