// Step sizes and token scales of TTT layers.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

struct StepSize {
    float scale;
    __device__ void operator()(const float (&logit)[1], float (&step)[1]) const { step[0] = scale * sigmoid(logit[0]); }
};
struct StepSizeBackward {  // of (dstep, step)
    float inverse_scale;
    __device__ void operator()(const float (&x)[2], float (&dlogit)[1]) const {
        dlogit[0] = x[0] * x[1] * (1.0f - x[1] * inverse_scale);
    }
};

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

void CudaBackend::step_size_forward(Tensor step_size, Tensor logit, float scale) {
    LOCKSTEP_ASSERT(step_size.count() == logit.count());
    map("step_size_forward", stream(), logit.count(), Operands<float, 1, float, 1>{{step_size.fp32()}, {logit.fp32()}},
        StepSize{scale});
}

void CudaBackend::step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float scale) {
    LOCKSTEP_ASSERT(dlogit.count() == step_size.count() && dstep_size.count() == step_size.count());
    dispatch(dlogit.type(), [&](auto element) {
        using T = decltype(element);
        map("step_size_backward", stream(), dlogit.count(),
            Operands<T, 1, float, 2>{{elements<T>(dlogit)}, {dstep_size.fp32(), step_size.fp32()}},
            // Scale 0 turns off inner learning: steps and gradients are 0, not 0/0.
            StepSizeBackward{scale == 0.0f ? 0.0f : 1.0f / scale});
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
