// Norms over `rows` rows of `width`. dx, dweight and dbias are +=.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu {

struct Norm {
    void (*rms_forward)(float* y, float* inverse_rms, const float* x, const float* weight, float epsilon,
                        std::int64_t rows, std::int64_t width);
    void (*rms_backward)(float* dx, float* dweight, const float* dy, const float* x, const float* weight,
                         const float* inverse_rms, std::int64_t rows, std::int64_t width);
    void (*layer_forward)(float* y, float* mean, float* inverse_deviation, const float* x, const float* weight,
                          const float* bias, float epsilon, std::int64_t rows, std::int64_t width);
    void (*layer_backward)(float* dx, float* dweight, float* dbias, const float* dy, const float* x,
                           const float* weight, const float* mean, const float* inverse_deviation, std::int64_t rows,
                           std::int64_t width);
    // LayerNorm over some of the columns (kernels/backend.hpp); moments and sums are pairs a row. dx is overwritten.
    void (*split_moments)(float* moments, const float* x, std::int64_t rows, std::int64_t width);
    void (*split_forward)(float* y, const float* x, const float* mean, const float* inverse_deviation,
                          const float* weight, const float* bias, std::int64_t rows, std::int64_t width);
    void (*split_backward_sums)(float* sums, float* dweight, float* dbias, const float* dy, const float* x,
                                const float* weight, const float* mean, const float* inverse_deviation,
                                std::int64_t rows, std::int64_t width);
    void (*split_backward)(float* dx, const float* dy, const float* x, const float* weight, const float* mean,
                           const float* inverse_deviation, const float* sums, float all_width, std::int64_t rows,
                           std::int64_t width);
};

}  // namespace lockstep::kernels::cpu
