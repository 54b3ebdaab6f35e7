// Maps a tensor's run-time type to a compile-time element type.
#pragma once

#include "base/error.hpp"
#include "device/tensor.hpp"
#include "kernels/cuda/element.hpp"

namespace lockstep::kernels::cuda {

template <class T>
T* elements(const Tensor& tensor) {  // null for an empty tensor; the caller has checked the type
    return static_cast<T*>(tensor.data());
}

template <class T>
T* strided_elements(const Tensor& tensor) {  // for kernels that heed Tensor::stride()
    return static_cast<T*>(tensor.strided_data());
}

// Calls function(T()) with the element type: float, bf16 or fp16.
template <class Function>
void dispatch(Type type, Function&& function) {
    switch (type) {
        case Type::fp32:
            return function(float{});
        case Type::bf16:
            return function(bf16{});
        case Type::fp16:
            return function(fp16{});
        default:
            throw fault_error("a kernel was called with a tensor of {}; it supports fp32, bf16 and fp16",
                              type_name(type));
    }
}

}  // namespace lockstep::kernels::cuda
