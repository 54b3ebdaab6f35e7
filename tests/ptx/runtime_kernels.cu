#include "ptx/runtime_kernels.hpp"

namespace lockstep::ptx_tests {
namespace {

__global__ void packed(double* out, char a, double b, Triple c, short d) {
    out[0] = a;
    out[1] = b;
    out[2] = c.a;
    out[3] = c.b;
    out[4] = c.c;
    out[5] = d;
}

__global__ void __launch_bounds__(64) bounded(float* data, int count, float factor) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) data[i] = data[i] * factor + static_cast<float>(i);
}

__global__ void turned(float* data, int count) {
    extern __shared__ float shared[];
    const int i = static_cast<int>(threadIdx.x);
    if (i < count) shared[i] = data[i];
    __syncthreads();
    if (i < count) data[i] = shared[count - 1 - i];
}

__global__ void beyond(float* data, int count) {
    data[0] = data[count];
}

}  // namespace

void launch_packed(double* out, char a, double b, Triple c, short d, cudaStream_t stream) {
    packed<<<1, 1, 0, stream>>>(out, a, b, c, d);
}

void launch_bounded(float* data, int count, float factor, unsigned threads, cudaStream_t stream) {
    bounded<<<(static_cast<unsigned>(count) + threads - 1) / threads, threads, 0, stream>>>(data, count, factor);
}

void launch_turned(float* data, int count, std::size_t shared_bytes, cudaStream_t stream) {
    turned<<<1, static_cast<unsigned>(count), shared_bytes, stream>>>(data, count);
}

const void* turned_kernel() {
    return reinterpret_cast<const void*>(&turned);
}

void launch_beyond(float* data, int count, cudaStream_t stream) {
    beyond<<<1, 1, 0, stream>>>(data, count);
}

}  // namespace lockstep::ptx_tests
