#include "kernels/cpu/vector/norm.hpp"

#include <algorithm>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

// norm(first, last) over all rows of x, first adding the residual (may be empty), a few rows at a time so that they
// stay in cache.
template <class T, class Body>
void for_normed_rows(T* x, Tensor residual, std::int64_t rows, std::int64_t width, const Elementwise<T>& elementwise,
                     Body&& norm) {
    const T* add = residual.empty() ? nullptr : residual.as<T>();
    LOCKSTEP_ASSERT(!add || residual.count() == rows * width);
    parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
        const std::int64_t step = add ? row_grain(width) : last - first;
        for (std::int64_t row = first; row < last; row += step) {
            const std::int64_t end = std::min(row + step, last);
            if (add) elementwise.add(x + row * width, add + row * width, (end - row) * width);
            norm(row, end);
        }
    });
}

}  // namespace

void CpuBackend::rms_norm_forward(Tensor y, Tensor inverse_rms, Tensor x, Tensor residual, Tensor weight,
                                  float epsilon) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(y.count() == x.count() && weight.count() == width && inverse_rms.count() == rows);
    float* inverse = inverse_rms.fp32();
    const float* w = weight.fp32();
    with_element(x, [&]<class T>(T) {
        T *out = y.as<T>(), *in = x.as<T>();
        const Families<T>& vector = vector_.of<T>();
        for_normed_rows(in, residual, rows, width, *vector.elementwise, [&](std::int64_t first, std::int64_t last) {
            vector.norm->rms_forward(out + first * width, inverse + first, in + first * width, w, epsilon, last - first,
                                     width);
        });
    });
}

std::int64_t row_sums_scratch_floats(std::int64_t rows, std::int64_t columns) {
    return row_blocks(rows) * columns;
}

void CpuBackend::rms_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, Tensor inverse_rms,
                                   Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && inverse_rms.count() == rows);
    LOCKSTEP_ASSERT(weight.count() == width && dweight.count() == width);
    float* partials = scratch_->shared(row_sums_scratch_floats(rows, width));
    const float *w = weight.fp32(), *inverse = inverse_rms.fp32();
    with_element(x, [&]<class T>(T) {
        T* din = dx.as<T>();
        const T *dout = dy.as<T>(), *in = x.as<T>();
        sum_over_rows(rows, partials, {{dweight.fp32(), width}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          vector_.of<T>().norm->rms_backward(din + first * width, partial, dout + first * width,
                                                             in + first * width, w, inverse + first, last - first,
                                                             width, accumulate == Accumulate::yes);
                      });
    });
}

void CpuBackend::layer_norm_forward(Tensor y, Tensor mean, Tensor inverse_deviation, Tensor x, Tensor residual,
                                    Tensor weight, Tensor bias, float epsilon) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(y.count() == x.count() && weight.count() == width && bias.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    float *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    const float *w = weight.fp32(), *b = bias.fp32();
    with_element(x, [&]<class T>(T) {
        T *out = y.as<T>(), *in = x.as<T>();
        const Families<T>& vector = vector_.of<T>();
        for_normed_rows(in, residual, rows, width, *vector.elementwise, [&](std::int64_t first, std::int64_t last) {
            vector.norm->layer_forward(out + first * width, centre + first, inverse + first, in + first * width, w, b,
                                       epsilon, last - first, width);
        });
    });
}

void CpuBackend::layer_norm_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                     Tensor mean, Tensor inverse_deviation, Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && weight.count() == width);
    LOCKSTEP_ASSERT(dweight.count() == width && dbias.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    float* partials = scratch_->shared(row_sums_scratch_floats(rows, 2 * width));
    const float *w = weight.fp32(), *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    with_element(x, [&]<class T>(T) {
        T* din = dx.as<T>();
        const T *dout = dy.as<T>(), *in = x.as<T>();
        sum_over_rows(rows, partials, {{dweight.fp32(), width}, {dbias.fp32(), width}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          vector_.of<T>().norm->layer_backward(
                              din + first * width, partial, partial + width, dout + first * width, in + first * width,
                              w, centre + first, inverse + first, last - first, width, accumulate == Accumulate::yes);
                      });
    });
}

}  // namespace lockstep::kernels::cpu
