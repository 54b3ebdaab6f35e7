#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::gelu_forward(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == x.count());
    float* out = y.fp32();
    const float* in = x.fp32();
    for_elements(y.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->gelu_forward(out + first, in + first, last - first);
    });
}

void CpuBackend::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count());
    float* out = dx.fp32();
    const float *gradient = dy.fp32(), *in = x.fp32();
    for_elements(x.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->gelu_backward(out + first, gradient + first, in + first, last - first);
    });
}

void CpuBackend::swiglu_forward(Tensor y, Tensor gate, Tensor up) {
    LOCKSTEP_ASSERT(y.count() == gate.count() && y.count() == up.count());
    float* out = y.fp32();
    const float *left = gate.fp32(), *right = up.fp32();
    for_elements(y.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->swiglu_forward(out + first, left + first, right + first, last - first);
    });
}

void CpuBackend::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    LOCKSTEP_ASSERT(dgate.count() == dy.count() && dup.count() == dy.count() && gate.count() == dy.count() &&
                    up.count() == dy.count());
    float *dleft = dgate.fp32(), *dright = dup.fp32();
    const float *gradient = dy.fp32(), *left = gate.fp32(), *right = up.fp32();
    for_elements(dy.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->swiglu_backward(dleft + first, dright + first, gradient + first, left + first,
                                             right + first, last - first);
    });
}

void CpuBackend::gelu_gate_forward(Tensor y, Tensor gate, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == gate.count() && y.count() == x.count());
    float* out = y.fp32();
    const float *left = gate.fp32(), *right = x.fp32();
    for_elements(y.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->gelu_gate_forward(out + first, left + first, right + first, last - first);
    });
}

void CpuBackend::gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) {
    LOCKSTEP_ASSERT(dgate.count() == dy.count() && dx.count() == dy.count() && gate.count() == dy.count() &&
                    x.count() == dy.count());
    float *dleft = dgate.fp32(), *dright = dx.fp32();
    const float *gradient = dy.fp32(), *left = gate.fp32(), *right = x.fp32();
    for_elements(dy.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->gelu_gate_backward(dleft + first, dright + first, gradient + first, left + first,
                                                right + first, last - first);
    });
}

}  // namespace lockstep::kernels::cpu
