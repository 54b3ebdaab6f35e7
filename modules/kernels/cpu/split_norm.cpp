#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/norm.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::split_norm_moments(Tensor moments, Tensor x) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(moments.count() == 2 * rows);
    float* out = moments.fp32();
    with_element(x, [&]<class T>(T) {
        const T* in = x.as<T>();
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            vector_.of<T>().norm->split_moments(out + 2 * first, in + first * width, last - first, width);
        });
    });
}

// The parts have equal widths: the mean is the mean of their means, and the sum of squares around it is that around
// their own means plus width (their mean - mean)² each.
void CpuBackend::split_norm_statistics(Tensor mean, Tensor inverse_deviation, Tensor moments, std::int64_t width,
                                       float epsilon) {
    const std::int64_t rows = mean.count(), parts = moments.size(0);
    LOCKSTEP_ASSERT(inverse_deviation.count() == rows && moments.count() == 2 * parts * rows && parts > 0 && width > 0);
    float *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    const float* of = moments.fp32();
    const auto columns = static_cast<double>(width);
    parallel_for(rows, row_grain(parts), [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t r = first; r < last; ++r) {
            double sum = 0, squares = 0;
            for (std::int64_t p = 0; p < parts; ++p) sum += static_cast<double>(of[2 * (p * rows + r)]);
            const double whole = sum / static_cast<double>(parts);
            for (std::int64_t p = 0; p < parts; ++p) {
                const double distance = static_cast<double>(of[2 * (p * rows + r)]) - whole;
                squares += static_cast<double>(of[2 * (p * rows + r) + 1]) + columns * distance * distance;
            }
            centre[r] = static_cast<float>(whole);
            inverse[r] = static_cast<float>(
                1 / std::sqrt(squares / (columns * static_cast<double>(parts)) + static_cast<double>(epsilon)));
        }
    });
}

void CpuBackend::split_norm_forward(Tensor y, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor weight,
                                    Tensor bias) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(y.count() == x.count() && weight.count() == width && bias.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    const float *w = weight.fp32(), *b = bias.fp32(), *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    with_element(x, [&]<class T>(T) {
        T* out = y.as<T>();
        const T* in = x.as<T>();
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            vector_.of<T>().norm->split_forward(out + first * width, in + first * width, centre + first,
                                                inverse + first, w, b, last - first, width);
        });
    });
}

void CpuBackend::split_norm_backward_sums(Tensor sums, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                          Tensor mean, Tensor inverse_deviation) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(sums.count() == 2 * rows && dy.count() == x.count() && weight.count() == width);
    LOCKSTEP_ASSERT(dweight.count() == width && dbias.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    float *out = sums.fp32(), *partials = scratch_->shared(row_sums_scratch_floats(rows, 2 * width));
    const float *w = weight.fp32(), *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    with_element(x, [&]<class T>(T) {
        const T *dout = dy.as<T>(), *in = x.as<T>();
        sum_over_rows(rows, partials, {{dweight.fp32(), width}, {dbias.fp32(), width}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          vector_.of<T>().norm->split_backward_sums(
                              out + 2 * first, partial, partial + width, dout + first * width, in + first * width, w,
                              centre + first, inverse + first, last - first, width);
                      });
    });
}

void CpuBackend::split_norm_backward(Tensor dx, Tensor dy, Tensor x, Tensor weight, Tensor mean,
                                     Tensor inverse_deviation, Tensor sums, std::int64_t all_width) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && weight.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows && sums.count() == 2 * rows);
    LOCKSTEP_ASSERT(all_width >= width);
    const float *w = weight.fp32(), *all = sums.fp32(), *centre = mean.fp32(), *inverse = inverse_deviation.fp32();
    with_element(x, [&]<class T>(T) {
        T* din = dx.as<T>();
        const T *dout = dy.as<T>(), *in = x.as<T>();
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            vector_.of<T>().norm->split_backward(din + first * width, dout + first * width, in + first * width, w,
                                                 centre + first, inverse + first, all + 2 * first,
                                                 static_cast<float>(all_width), last - first, width);
        });
    });
}

}  // namespace lockstep::kernels::cpu
