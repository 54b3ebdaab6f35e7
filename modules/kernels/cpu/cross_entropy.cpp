#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::cross_entropy(Tensor losses, Tensor logits, Tensor targets, const LossGradient& gradient,
                               Tensor loss_scale) {
    const std::int64_t vocabulary = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(losses.count() == rows && targets.count() == rows);
    float* loss = losses.fp32();
    const std::int32_t* target = targets.as<std::int32_t>();
    const float scale = gradient.scale * (loss_scale.empty() ? 1.0f : static_cast<float>(*loss_scale.fp64()));
    with_element(logits, [&]<class T>(T) {
        T* scores = logits.strided_as<T>();
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        parallel_for(rows, row_grain(vocabulary), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                T* row = scores + r * logits.stride();
                const std::int64_t chosen = target[r];
                LOCKSTEP_ASSERT(chosen < vocabulary);
                if (chosen < 0) {
                    loss[r] = 0.0f;
                    if (gradient.scale != 0.0f) std::fill_n(row, vocabulary, T{});
                    continue;
                }
                const float highest = vector.maximum(row, vocabulary), score = widened(row[chosen]);
                const float total = vector.sum_of_exponentials(row, highest, vocabulary);
                const float log_total = std::log(total);
                loss[r] = log_total + (highest - score);
                if (gradient.scale == 0.0f) continue;
                const float factor = scale / total * (1 + 2 * gradient.z_loss * (highest + log_total));
                vector.softmax_gradient(row, highest, factor, gradient.inverse_cap, vocabulary);
                row[chosen] = rounded<T>((factor * std::exp(score - highest) - scale) * gradient.slope(score));
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
