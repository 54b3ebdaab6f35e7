#include <algorithm>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/document_bounds.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

// [width, taps] to [taps, width], so that channels are contiguous.
void transpose_taps(float* by_tap, const float* weight, std::int64_t width, std::int64_t taps) {
    for (std::int64_t c = 0; c < width; ++c)
        for (std::int64_t j = 0; j < taps; ++j) by_tap[j * width + c] = weight[c * taps + j];
}

}  // namespace

// Weights by tap, and their gradients as partial sums.
std::int64_t convolution_scratch_floats(std::int64_t rows, std::int64_t width, std::int64_t taps, bool backward) {
    return width * taps + (backward ? width * taps + row_blocks(rows) * width * (taps + 1) : 0);
}

void CpuBackend::convolution_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor history,
                                     std::int64_t length, const Documents& documents) {
    const std::int64_t width = x.size(-1), rows = x.rows(), taps = weight.size(-1);
    LOCKSTEP_ASSERT(y.count() == x.count() && y.strided_data() != x.strided_data() && weight.count() == width * taps);
    LOCKSTEP_ASSERT(bias.count() == width && length > 0 && rows % length == 0);
    LOCKSTEP_ASSERT(history.empty() || history.count() == rows / length * (taps - 1) * width);
    LOCKSTEP_ASSERT(documents.cover(rows / length, length));
    const DocumentBounds bounds(documents);
    float* by_tap = scratch_->shared(convolution_scratch_floats(rows, width, taps, false));
    const float* add = bias.fp32();
    transpose_taps(by_tap, weight.fp32(), width, taps);
    scratch_->reserve(width);
    with_element(x, [&]<class T>(T) {
        T* out = y.as<T>();
        const T *in = x.strided_as<T>(), *before = history.empty() ? nullptr : history.as<T>();
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int thread) {
            float* line = scratch_->of(thread);
            for (std::int64_t r = first; r < last; ++r) {
                const std::int64_t sequence = r / length, t = r % length, begin = bounds.begin(sequence, t);
                std::copy_n(add, width, line);
                for (std::int64_t j = 0; j < taps; ++j) {
                    const std::int64_t source = t - (taps - 1) + j;
                    if (source < begin) continue;
                    const T* values = in + (sequence * length + source) * x.stride();
                    if (source < 0) {
                        if (!before) continue;
                        values = before + (sequence * (taps - 1) + source + taps - 1) * width;
                    }
                    vector.multiply_add(line, by_tap + j * width, values, width);
                }
                vector.round(out + r * width, line, width);
            }
        });
    });
}

void CpuBackend::convolution_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                      std::int64_t length, const Documents& documents, Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows(), taps = weight.size(-1);
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && dx.strided_data() != dy.data());
    LOCKSTEP_ASSERT(weight.count() == width * taps && dweight.count() == width * taps && dbias.count() == width);
    LOCKSTEP_ASSERT(length > 0 && rows % length == 0 && documents.cover(rows / length, length));
    const DocumentBounds bounds(documents);
    float* by_tap = scratch_->shared(convolution_scratch_floats(rows, width, taps, true));
    float *dby_tap = by_tap + width * taps, *partials = dby_tap + width * taps;
    float* dweights = dweight.fp32();
    transpose_taps(by_tap, weight.fp32(), width, taps);
    std::fill_n(dby_tap, width * taps, 0.0f);
    scratch_->reserve(width);
    with_element(x, [&]<class T>(T) {
        T* din = dx.strided_as<T>();
        const T *in = x.strided_as<T>(), *gradient = dy.as<T>();
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int thread) {
            float* line = scratch_->of(thread);
            for (std::int64_t r = first; r < last; ++r) {
                T* const out = din + r * dx.stride();
                const std::int64_t end = std::min(length, bounds.end(r / length, r % length));
                std::fill_n(line, width, 0.0f);
                if (accumulate == Accumulate::yes) vector.add_to(line, out, width);
                for (std::int64_t j = 0; j < taps; ++j) {
                    const std::int64_t ahead = taps - 1 - j;
                    if (r % length + ahead < end)
                        vector.multiply_add(line, by_tap + j * width, gradient + (r + ahead) * width, width);
                }
                vector.round(out, line, width);
            }
        });
        sum_over_rows(
            rows, partials, {{dby_tap, width * taps}, {dbias.fp32(), width}},
            [&](std::int64_t first, std::int64_t last, float* partial) {
                for (std::int64_t r = first; r < last; ++r) {
                    const T* line = gradient + r * width;
                    const std::int64_t begin = std::max<std::int64_t>(0, bounds.begin(r / length, r % length));
                    for (std::int64_t j = 0; j < taps; ++j) {
                        const std::int64_t behind = taps - 1 - j;
                        if (r % length - behind >= begin)
                            vector.add_products(partial + j * width, line, in + (r - behind) * x.stride(), width);
                    }
                    vector.add_to(partial + taps * width, line, width);
                }
            });
    });
    for (std::int64_t c = 0; c < width; ++c)
        for (std::int64_t j = 0; j < taps; ++j) dweights[c * taps + j] += dby_tap[j * width + c];
}

}  // namespace lockstep::kernels::cpu
