#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::decide_update(Tensor decision, Tensor loss, Tensor totals, double clip, const LossScaling& scaling) {
    LOCKSTEP_ASSERT(decision.count() == Decision::places && totals.count() == 2);
    double* out = decision.fp64();
    const bool scaled = scaling.growth_interval > 0;
    const double inverse_scale = scaled ? 1 / out[Decision::loss_scale] : 1;
    const double norm = std::sqrt(totals.fp64()[0]) * inverse_scale;
    const bool proceed = std::isfinite(*loss.fp64()) && std::isfinite(norm);
    out[Decision::proceed] = proceed ? 1 : 0;
    out[Decision::gradient_norm] = norm;
    out[Decision::factor] = inverse_scale * (clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0);
    out[Decision::updates] += out[Decision::proceed];
    out[Decision::zeros] = totals.fp64()[1];
    if (!scaled) return;
    double &scale = out[Decision::loss_scale], &good = out[Decision::good_steps], &bad = out[Decision::bad_steps];
    if (!proceed) {
        good = 0;
        bad += 1;
        if (bad >= static_cast<double>(scaling.hysteresis)) scale = std::max(scale / 2, scaling.minimum);
    } else if (good += 1; good >= static_cast<double>(scaling.growth_interval)) {
        scale *= 2;
        good = bad = 0;
    }
}

void CpuBackend::adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment, Tensor second_moment,
                       Tensor decays, Tensor decision, const AdamWSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && first_moment.count() == count && second_moment.count() == count);
    LOCKSTEP_ASSERT((working.empty() || working.count() == count) && decays.count() >= DecayBits::words_for(count) &&
                    decision.count() == Decision::places);
    const double* decided = decision.fp64();
    if (decided[Decision::proceed] == 0) return;
    LOCKSTEP_ASSERT(decided[Decision::updates] >= 1);
    const auto beta1 = static_cast<double>(settings.beta1), beta2 = static_cast<double>(settings.beta2);
    const auto rate = static_cast<double>(settings.learning_rate);
    AdamWFactors plain{};
    plain.beta1 = settings.beta1;
    plain.beta2 = settings.beta2;
    plain.epsilon = settings.epsilon;
    plain.gradient_factor = static_cast<float>(decided[Decision::factor]);
    plain.step = static_cast<float>(rate / (1 - std::pow(beta1, decided[Decision::updates])));
    plain.second_moment_factor = static_cast<float>(1 / (1 - std::pow(beta2, decided[Decision::updates])));
    plain.decay = 1;
    AdamWFactors decaying = plain;
    decaying.decay = static_cast<float>(1 - rate * static_cast<double>(settings.weight_decay));
    float *p = parameter.fp32(), *m = first_moment.fp32(), *v = second_moment.fp32();
    const float* g = gradient.fp32();
    const std::int32_t* words = decays.as<std::int32_t>();
    const auto decays_at = [&](std::int64_t element) {
        const auto word = static_cast<std::uint32_t>(words[element / DecayBits::elements_a_word]);
        return ((word >> (element / DecayBits::elements % DecayBits::bits)) & 1u) != 0;
    };
    // Without a working copy, the next step computes with the parameter itself.
    with_element(working.empty() ? parameter : working, [&]<class T>(T) {
        T* rounded = working.empty() ? nullptr : working.as<T>();
        for_elements(count, memory_grain / 4, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t begin = first; begin < last;) {  // runs of elements that decay alike
                const bool decay = decays_at(begin);
                std::int64_t end = begin;
                while (end < last && decays_at(end) == decay) end += DecayBits::elements;
                end = std::min(end, last);
                vector_.of<T>().elementwise->adamw(p + begin, rounded ? rounded + begin : nullptr, g + begin, m + begin,
                                                   v + begin, decay ? decaying : plain, end - begin);
                begin = end;
            }
            // The vector code writes only what needs rounding.
            if constexpr (std::is_same_v<T, float>)
                if (rounded != nullptr) std::copy(p + first, p + last, rounded + first);
        });
    });
}

}  // namespace lockstep::kernels::cpu
