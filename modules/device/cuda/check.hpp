// Every call of the CUDA runtime is checked here.
#pragma once

#include <cuda_runtime.h>

namespace lockstep {

// Throws a fault error that names `what` and CUDA's reason; out of memory is a usage error that says what to lower.
void check_cuda(cudaError_t result, const char* what);
// Waits for `stream`; an error is said to be the kernel's. Nothing while the stream is being captured.
void after_launch(const char* kernel, cudaStream_t stream);

}  // namespace lockstep
