#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

// The function that `pick` takes of the table, over all elements of tensors of one type and size.
template <class Pick, class... Tensors>
void over_elements(const VectorFunctions& vector, Pick&& pick, Tensor first, Tensors... others) {
    LOCKSTEP_ASSERT(((others.count() == first.count()) && ...));
    with_element(first, [&]<class T>(T) {
        const auto function = pick(*vector.of<T>().elementwise);
        for_elements(first.count(), arithmetic_grain, [&](std::int64_t from, std::int64_t to) {
            function(first.as<T>() + from, others.template as<T>() + from..., to - from);
        });
    });
}

}  // namespace

void CpuBackend::gelu_forward(Tensor y, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.gelu_forward; }, y, x);
}
void CpuBackend::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.gelu_backward; }, dx, dy, x);
}
void CpuBackend::silu_forward(Tensor y, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.silu_forward; }, y, x);
}
void CpuBackend::silu_backward(Tensor dx, Tensor dy, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.silu_backward; }, dx, dy, x);
}
void CpuBackend::swiglu_forward(Tensor y, Tensor gate, Tensor up) {
    over_elements(
        vector_, [](const auto& of) { return of.swiglu_forward; }, y, gate, up);
}
void CpuBackend::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    over_elements(
        vector_, [](const auto& of) { return of.swiglu_backward; }, dgate, dup, dy, gate, up);
}
void CpuBackend::gelu_gate_forward(Tensor y, Tensor gate, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.gelu_gate_forward; }, y, gate, x);
}
void CpuBackend::gelu_gate_backward(Tensor dgate, Tensor dx, Tensor dy, Tensor gate, Tensor x) {
    over_elements(
        vector_, [](const auto& of) { return of.gelu_gate_backward; }, dgate, dx, dy, gate, x);
}

}  // namespace lockstep::kernels::cpu
