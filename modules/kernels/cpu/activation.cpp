#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::gelu_forward(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == x.count());
    with_element(x, [&]<class T>(T) {
        T* y_data = y.as<T>();
        const T* x_data = x.as<T>();
        for_elements(x.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->gelu_forward(y_data + first, x_data + first, last - first);
        });
    });
}

void CpuBackend::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count());
    with_element(dy, [&]<class T>(T) {
        T* dx_data = dx.as<T>();
        const T *dy_data = dy.as<T>(), *x_data = x.as<T>();
        for_elements(dy.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->gelu_backward(dx_data + first, dy_data + first, x_data + first, last - first);
        });
    });
}

void CpuBackend::swiglu_forward(Tensor y, Tensor gate, Tensor up) {
    LOCKSTEP_ASSERT(y.count() == gate.count() && y.count() == up.count());
    with_element(gate, [&]<class T>(T) {
        T* y_data = y.as<T>();
        const T *gate_data = gate.as<T>(), *up_data = up.as<T>();
        for_elements(gate.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->swiglu_forward(y_data + first, gate_data + first, up_data + first,
                                                        last - first);
        });
    });
}

void CpuBackend::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    LOCKSTEP_ASSERT(dgate.count() == dy.count() && dup.count() == dy.count() && gate.count() == dy.count() &&
                    up.count() == dy.count());
    with_element(dy, [&]<class T>(T) {
        T *dgate_data = dgate.as<T>(), *dup_data = dup.as<T>();
        const T *dy_data = dy.as<T>(), *gate_data = gate.as<T>(), *up_data = up.as<T>();
        for_elements(dy.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->swiglu_backward(dgate_data + first, dup_data + first, dy_data + first,
                                                         gate_data + first, up_data + first, last - first);
        });
    });
}

void CpuBackend::gelu_gate_forward(Tensor y, Tensor gate, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == gate.count() && y.count() == x.count());
    with_element(gate, [&]<class T>(T) {
        T* y_data = y.as<T>();
        const T *gate_data = gate.as<T>(), *x_data = x.as<T>();
        for_elements(gate.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->gelu_gate_forward(y_data + first, gate_data + first, x_data + first,
                                                           last - first);
        });
    });
}

void CpuBackend::gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) {
    LOCKSTEP_ASSERT(dgate.count() == dy.count() && dx.count() == dy.count() && gate.count() == dy.count() &&
                    x.count() == dy.count());
    with_element(dy, [&]<class T>(T) {
        T *dgate_data = dgate.as<T>(), *dx_data = dx.as<T>();
        const T *dy_data = dy.as<T>(), *gate_data = gate.as<T>(), *x_data = x.as<T>();
        for_elements(dy.count(), arithmetic_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->gelu_gate_backward(dgate_data + first, dx_data + first, dy_data + first,
                                                            gate_data + first, x_data + first, last - first);
        });
    });
}

}  // namespace lockstep::kernels::cpu
