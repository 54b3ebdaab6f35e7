// Maps a tensor's run-time type to its element type.
#pragma once

#include <type_traits>

#include "base/error.hpp"
#include "base/float16.hpp"
#include "device/tensor.hpp"
#include "kernels/cpu/vector/element.hpp"

namespace lockstep {
template <>
constexpr bool is_element_of<kernels::cpu::bf16>(Type type) {
    return type == Type::bf16;
}
}  // namespace lockstep

namespace lockstep::kernels::cpu {

// Single values; loops belong in vector/.
inline float widened(float value) {
    return value;
}
inline float widened(bf16 value) {
    return bf16_value(value.bits);
}
template <class T>
T rounded(float value) {
    if constexpr (std::is_same_v<T, bf16>)
        return {bf16_bits(value)};
    else
        return value;
}

// Calls body(T{}), T the type of the tensor's elements.
template <class Body>
void with_element(const Tensor& tensor, Body&& body) {
    switch (tensor.type()) {
        case Type::fp32:
            return body(float{});
        case Type::bf16:
            return body(bf16{});
        default:
            throw fault_error("the CPU backend does not support {}, only fp32 and bf16", type_name(tensor.type()));
    }
}

}  // namespace lockstep::kernels::cpu
