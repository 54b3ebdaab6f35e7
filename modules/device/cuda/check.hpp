// Every call of the CUDA runtime is checked here.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace lockstep {

// Throws a fault error that names `what` and CUDA's reason; out of memory is a usage error that says what to lower.
void check_cuda(cudaError_t result, const char* what);
// Lets `kernel` be launched with so much dynamic shared memory. Asks the runtime only when it needs more than before.
void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name);
// Waits for `stream`; an error is said to be the kernel's. Nothing while the stream is being captured.
void after_launch(const char* kernel, cudaStream_t stream);

}  // namespace lockstep
