#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::cross_entropy_maxima(Tensor maxima, Tensor logits) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(maxima.count() == rows);
    float* highest = maxima.fp32();
    with_element(logits, [&]<class T>(T) {
        const T* scores = logits.strided_as<T>();
        parallel_for(rows, row_grain(columns), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r)
                highest[r] = vector_.of<T>().elementwise->maximum(scores + r * logits.stride(), columns);
        });
    });
}

void CpuBackend::cross_entropy_sums(Tensor sums, Tensor logits, Tensor maxima, Tensor targets, std::int64_t first_id) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(sums.count() == 2 * rows && maxima.count() == rows && targets.count() == rows);
    float* out = sums.fp32();
    const float* highest = maxima.fp32();
    const std::int32_t* target = targets.as<std::int32_t>();
    with_element(logits, [&]<class T>(T) {
        const T* scores = logits.strided_as<T>();
        parallel_for(rows, row_grain(columns), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                out[2 * r] = out[2 * r + 1] = 0.0f;
                if (target[r] < 0) continue;
                const T* row = scores + r * logits.stride();
                const std::int64_t chosen = target[r] - first_id;
                out[2 * r] = vector_.of<T>().elementwise->sum_of_exponentials(row, highest[r], columns);
                if (chosen >= 0 && chosen < columns) out[2 * r + 1] = widened(row[chosen]) - highest[r];
            }
        });
    });
}

void CpuBackend::cross_entropy_finish(Tensor losses, Tensor logits, Tensor maxima, Tensor sums, Tensor targets,
                                      std::int64_t first_id, const LossGradient& gradient, Tensor loss_scale) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(losses.count() == rows && maxima.count() == rows && targets.count() == rows);
    LOCKSTEP_ASSERT(sums.count() == 2 * rows);
    float* loss = losses.fp32();
    const float *highest = maxima.fp32(), *of = sums.fp32();
    const std::int32_t* target = targets.as<std::int32_t>();
    const float scale = gradient.scale * (loss_scale.empty() ? 1.0f : static_cast<float>(*loss_scale.fp64()));
    with_element(logits, [&]<class T>(T) {
        T* scores = logits.strided_as<T>();
        parallel_for(rows, row_grain(columns), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                T* row = scores + r * logits.stride();
                loss[r] = target[r] < 0 ? 0.0f : std::log(of[2 * r]) - of[2 * r + 1];
                if (gradient.scale == 0.0f) continue;
                if (target[r] < 0) {
                    std::fill_n(row, columns, T{});
                    continue;
                }
                const std::int64_t chosen = target[r] - first_id;
                const bool here = chosen >= 0 && chosen < columns;
                const float z_factor = 1 + 2 * gradient.z_loss * (highest[r] + std::log(of[2 * r]));
                const float factor = scale / of[2 * r] * z_factor, score = here ? widened(row[chosen]) : 0.0f;
                vector_.of<T>().elementwise->softmax_gradient(row, highest[r], factor, gradient.inverse_cap, columns);
                if (here)
                    row[chosen] = rounded<T>((factor * std::exp(score - highest[r]) - scale) * gradient.slope(score));
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
