// Error checks for the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace lockstep {

// Throws a fault error with `what` and CUDA's reason; out of memory is a usage error that says what to reduce.
void check_cuda(cudaError_t result, const char* what);
// Allows `kernel` this much dynamic shared memory. Calls the runtime only when the limit grows.
void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name);
// Waits for `stream` and attributes errors to the kernel. No-op during stream capture.
void after_launch(const char* kernel, cudaStream_t stream);

}  // namespace lockstep
