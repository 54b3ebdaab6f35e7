// Norms over `rows` rows of `width`, of type T. dx is overwritten or accumulated, dweight and dbias are +=.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

template <class T>
struct Norm {
    void (*rms_forward)(T* y, float* inverse_rms, const T* x, const float* weight, float epsilon, std::int64_t rows,
                        std::int64_t width);
    void (*rms_backward)(T* dx, float* dweight, const T* dy, const T* x, const float* weight, const float* inverse_rms,
                         std::int64_t rows, std::int64_t width, bool accumulate);
    void (*layer_forward)(T* y, float* mean, float* inverse_deviation, const T* x, const float* weight,
                          const float* bias, float epsilon, std::int64_t rows, std::int64_t width);
    void (*layer_backward)(T* dx, float* dweight, float* dbias, const T* dy, const T* x, const float* weight,
                           const float* mean, const float* inverse_deviation, std::int64_t rows, std::int64_t width,
                           bool accumulate);
    // LayerNorm over part of the columns (kernels/backend.hpp); moments and sums are pairs per row. dx is overwritten.
    void (*split_moments)(float* moments, const T* x, std::int64_t rows, std::int64_t width);
    void (*split_forward)(T* y, const T* x, const float* mean, const float* inverse_deviation, const float* weight,
                          const float* bias, std::int64_t rows, std::int64_t width);
    void (*split_backward_sums)(float* sums, float* dweight, float* dbias, const T* dy, const T* x, const float* weight,
                                const float* mean, const float* inverse_deviation, std::int64_t rows,
                                std::int64_t width);
    void (*split_backward)(T* dx, const T* dy, const T* x, const float* weight, const float* mean,
                           const float* inverse_deviation, const float* sums, float all_width, std::int64_t rows,
                           std::int64_t width);
};

}  // namespace lockstep::kernels::cpu
