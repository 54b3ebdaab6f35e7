// What the runtime asks of whatever runs the kernels, which also has cudaFuncSetAttribute and the occupancy: the fibers
// of this folder, or the machine for PTX (tests/ptx). A program links one of the two.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace lockstep::emulation {

struct Architecture {
    int major, minor;
    int shared_optin, shared_per_multiprocessor;  // bytes
};
Architecture architecture();
constexpr int threads_per_multiprocessor = 2048, blocks_per_multiprocessor = 32, shared_default = 48 * 1024;

// Memory that kernels may address came, went, or was written by a copy, a fill or a library.
void note_allocated(const void* begin, std::size_t bytes, bool of_device);
void note_released(const void* begin);
void note_written(const void* begin, std::size_t bytes);

// cudaErrorLaunchFailure where a kernel failed since the last call; then the caller's wait has failed.
cudaError_t take_kernel_failure();

}  // namespace lockstep::emulation
