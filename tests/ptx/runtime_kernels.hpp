// Kernels of the stand-in's own test, launched by kernel<<<…>>>.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::ptx_tests {

struct Triple {
    char a;
    double b;
    short c;
};
// out[0..6) = a, b, c.a, c.b, c.c, d
void launch_packed(double* out, char a, double b, Triple c, short d, cudaStream_t stream);
// data[i] = data[i] * factor + i; a block of `threads`, which the kernel bounds to 64.
void launch_bounded(float* data, int count, float factor, unsigned threads, cudaStream_t stream);
// Turns the `count` numbers around within a block, through `shared_bytes` of shared memory.
void launch_turned(float* data, int count, std::size_t shared_bytes, cudaStream_t stream);
const void* turned_kernel();
// Reads data[count].
void launch_beyond(float* data, int count, cudaStream_t stream);

}  // namespace lockstep::ptx_tests
