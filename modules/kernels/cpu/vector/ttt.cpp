#include "kernels/cpu/vector/ttt.hpp"

#include "kernels/cpu/vector/ttt_decode.hpp"
#include "kernels/cpu/vector/ttt_scan.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static void step_size_forward(float* step_size, const float* logit, float scale, std::int64_t count) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) step_size[i] = scale * sigmoid(logit[i]);
}

template <class T>
static void step_size_backward(T* dlogit, const float* dstep_size, const float* step_size, float scale,
                               std::int64_t count) {
    // Scale 0 turns off inner learning: steps and gradients are 0, not 0/0.
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
        dlogit[i] = from_float<T>(dstep_size[i] * step_size[i] * (1.0f - step_size[i] * inverse));
}

template <class T>
static constexpr Ttt<T> ttt_functions = {
    step_size_forward, step_size_backward<T>, forward_scratch, backward_scratch, decode_scratch,
    forward<T>,        backward<T>,           decode<T>,       decode_commit};
constinit const Ttt<float> ttt_fp32 = ttt_functions<float>;
constinit const Ttt<bf16> ttt_bf16 = ttt_functions<bf16>;

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
