#include <cmath>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::adamw(Tensor parameter, Tensor gradient, Tensor first_moment, Tensor second_moment,
                       const AdamW& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && first_moment.count() == count && second_moment.count() == count);
    LOCKSTEP_ASSERT(settings.step >= 1);
    const double beta1 = static_cast<double>(settings.beta1), beta2 = static_cast<double>(settings.beta2);
    const double rate = static_cast<double>(settings.learning_rate), steps = static_cast<double>(settings.step);
    AdamWFactors factors{};
    factors.beta1 = settings.beta1;
    factors.beta2 = settings.beta2;
    factors.epsilon = settings.epsilon;
    factors.gradient_factor = settings.gradient_factor;
    factors.step = static_cast<float>(rate / (1 - std::pow(beta1, steps)));
    factors.second_moment_factor = static_cast<float>(1 / (1 - std::pow(beta2, steps)));
    factors.decay = static_cast<float>(1 - rate * static_cast<double>(settings.weight_decay));
    float *p = parameter.fp32(), *m = first_moment.fp32(), *v = second_moment.fp32();
    const float* g = gradient.fp32();
    for_elements(count, memory_grain / 4, [&](std::int64_t first, std::int64_t last) {
        vector_.elementwise->adamw(p + first, g + first, m + first, v + first, factors, last - first);
    });
}

}  // namespace lockstep::kernels::cpu
