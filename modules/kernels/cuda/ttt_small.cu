// Step sizes and token scales of TTT layers.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned step_threads = 256;

// Few heads and logits in columns of a wider matrix: an element a thread.
template <class T>
__global__ void __launch_bounds__(step_threads)
    step_size_forward_kernel(float* __restrict__ step_size, const T* __restrict__ logit, const float* __restrict__ bias,
                             std::int64_t count, unsigned heads, std::int64_t stride, float scale) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * step_threads + threadIdx.x;
    if (i >= count) return;
    const std::int64_t row = i / heads, head = i - row * heads;
    step_size[i] = scale * sigmoid(to_float(logit[row * stride + head]) + bias[head]);
}

template <class T>
__global__ void __launch_bounds__(step_threads)
    step_size_backward_kernel(T* __restrict__ dlogit, const float* __restrict__ dstep_size,
                              const float* __restrict__ step_size, std::int64_t count, unsigned heads,
                              std::int64_t stride, float inverse_scale) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * step_threads + threadIdx.x;
    if (i >= count) return;
    const std::int64_t row = i / heads, head = i - row * heads;
    const float step = step_size[i];
    dlogit[row * stride + head] = from_float<T>(dstep_size[i] * step * (1.0f - step * inverse_scale));
}

constexpr unsigned token_threads = 128;

__global__ void token_scale_forward_kernel(float* token_scale, const float* delta, std::int64_t count) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * token_threads + threadIdx.x;
    if (i >= count) return;
    const float value = 1.0f / static_cast<float>(i + 1) + delta[i];
    token_scale[i] = value < 0.0f ? 0.0f : value;  // keeps NaN
}

__global__ void token_scale_backward_kernel(float* ddelta, const float* dtoken_scale, const float* delta,
                                            std::int64_t count) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * token_threads + threadIdx.x;
    if (i < count && !(1.0f / static_cast<float>(i + 1) + delta[i] < 0.0f)) ddelta[i] += dtoken_scale[i];
}

}  // namespace

void CudaBackend::step_size_forward(Tensor step_size, Tensor logit, Tensor bias, float scale) {
    const std::int64_t heads = bias.count(), count = step_size.count();
    LOCKSTEP_ASSERT(logit.count() == count && logit.size(-1) == heads);
    dispatch(logit.type(), [&](auto element) {
        using T = decltype(element);
        launch({"step_size_forward", dim3(blocks_for(count, step_threads)), step_threads, 0, stream()},
               step_size_forward_kernel<T>, step_size.fp32(), strided_elements<T>(logit), bias.fp32(), count,
               static_cast<unsigned>(heads), logit.stride(), scale);
    });
}

void CudaBackend::step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float scale) {
    const std::int64_t count = step_size.count();
    LOCKSTEP_ASSERT(dlogit.count() == count && dstep_size.count() == count);
    dispatch(dlogit.type(), [&](auto element) {
        using T = decltype(element);
        launch({"step_size_backward", dim3(blocks_for(count, step_threads)), step_threads, 0, stream()},
               step_size_backward_kernel<T>, strided_elements<T>(dlogit), dstep_size.fp32(), step_size.fp32(), count,
               static_cast<unsigned>(dlogit.size(-1)), dlogit.stride(),
               // Scale 0 turns off inner learning: steps and gradients are 0, not 0/0.
               scale == 0.0f ? 0.0f : 1.0f / scale);
    });
}

void CudaBackend::token_scale_forward(Tensor token_scale, Tensor delta) {
    LOCKSTEP_ASSERT(token_scale.count() == delta.count());
    launch({"token_scale_forward", dim3(blocks_for(delta.count(), token_threads)), token_threads, 0, stream()},
           token_scale_forward_kernel, token_scale.fp32(), delta.fp32(), delta.count());
}

void CudaBackend::token_scale_backward(Tensor ddelta, Tensor dtoken_scale, Tensor delta) {
    LOCKSTEP_ASSERT(ddelta.count() == delta.count() && dtoken_scale.count() == delta.count());
    launch({"token_scale_backward", dim3(blocks_for(delta.count(), token_threads)), token_threads, 0, stream()},
           token_scale_backward_kernel, ddelta.fp32(), dtoken_scale.fp32(), delta.fp32(), delta.count());
}

}  // namespace lockstep::kernels::cuda
