#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

std::int64_t group_of(const std::int32_t* words, std::int64_t element) {
    const auto word = static_cast<std::uint32_t>(words[element / WeightGroups::elements_a_word]);
    const std::int64_t run = element / WeightGroups::elements % WeightGroups::runs_a_word;
    return (word >> (WeightGroups::bits * run)) & (WeightGroups::most - 1);
}

// function(group, first, count) for every stretch of [first, last) that belongs to one group.
template <class Function>
void for_groups(const std::int32_t* words, std::int64_t first, std::int64_t last, const Function& function) {
    for (std::int64_t begin = first; begin < last;) {
        const std::int64_t group = group_of(words, begin);
        std::int64_t end = begin / WeightGroups::elements * WeightGroups::elements;
        while (end < last && group_of(words, end) == group) end += WeightGroups::elements;
        end = std::min(end, last);
        function(static_cast<std::size_t>(group), begin, end - begin);
        begin = end;
    }
}

double rate_of(float learning_rate, const WeightGroup& group) {
    return static_cast<double>(learning_rate) * static_cast<double>(group.rate_factor);
}
float kept_of(float learning_rate, const WeightGroup& group) {
    return static_cast<float>(1 - rate_of(learning_rate, group) * static_cast<double>(group.decay));
}

// update(element, first, last) on several threads; `element` says the type of the working copy.
template <class Update>
void update_all(Tensor parameter, Tensor working, Tensor groups, const Update& update) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT((working.empty() || working.count() == count) && groups.count() >= WeightGroups::words_for(count));
    // Without a working copy, the next step computes with the parameter itself.
    with_element(working.empty() ? parameter : working, [&]<class T>(T element) {
        for_elements(count, memory_grain / 4, [&](std::int64_t first, std::int64_t last) {
            update(element, first, last);
            // The vector code writes only what needs rounding.
            if constexpr (std::is_same_v<T, float>)
                if (!working.empty())
                    std::copy(parameter.fp32() + first, parameter.fp32() + last, working.fp32() + first);
        });
    });
}

MomentumFactors momentum_factors(const double* decision, float momentum, bool nesterov) {
    MomentumFactors factors{};
    factors.momentum = momentum;
    factors.ahead_gradient = nesterov ? 1.0f : 0.0f;
    factors.ahead_velocity = nesterov ? momentum : 1.0f;
    factors.gradient_factor = static_cast<float>(decision[Decision::factor]);
    return factors;
}

template <class T>
T* from(Tensor tensor, std::int64_t element) {  // null of an empty one
    return tensor.empty() ? nullptr : tensor.as<T>() + element;
}

}  // namespace

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
                       Tensor groups, Tensor decision, const AdamWSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && first_moment.count() == count && second_moment.count() == count);
    LOCKSTEP_ASSERT(decision.count() == Decision::places);
    const double* decided = decision.fp64();
    if (decided[Decision::proceed] == 0) return;
    LOCKSTEP_ASSERT(decided[Decision::updates] >= 1);
    const auto beta1 = static_cast<double>(settings.beta1), beta2 = static_cast<double>(settings.beta2);
    std::array<AdamWFactors, WeightGroups::most> factors{};
    for (std::size_t group = 0; group < factors.size(); ++group) {
        const double rate = rate_of(settings.learning_rate, settings.groups[group]);
        factors[group].beta1 = settings.beta1;
        factors[group].beta2 = settings.beta2;
        factors[group].epsilon = settings.epsilon;
        factors[group].gradient_factor = static_cast<float>(decided[Decision::factor]);
        factors[group].step = static_cast<float>(rate / (1 - std::pow(beta1, decided[Decision::updates])));
        factors[group].second_moment_factor = static_cast<float>(1 / (1 - std::pow(beta2, decided[Decision::updates])));
        factors[group].decay = kept_of(settings.learning_rate, settings.groups[group]);
    }
    update_all(parameter, working, groups, [&]<class T>(T, std::int64_t first, std::int64_t last) {
        for_groups(groups.as<std::int32_t>(), first, last, [&](std::size_t group, std::int64_t at, std::int64_t many) {
            vector_.of<T>().elementwise->adamw(parameter.fp32() + at, from<T>(working, at), gradient.fp32() + at,
                                               first_moment.fp32() + at, second_moment.fp32() + at, factors[group],
                                               many);
        });
    });
}

void CpuBackend::momentum(Tensor parameter, Tensor working, Tensor gradient, Tensor velocity, Tensor groups,
                          Tensor decision, const MomentumSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && velocity.count() == count && decision.count() == Decision::places);
    const double* decided = decision.fp64();
    if (decided[Decision::proceed] == 0) return;
    std::array<MomentumFactors, WeightGroups::most> factors;
    factors.fill(momentum_factors(decided, settings.momentum, settings.nesterov));
    for (std::size_t group = 0; group < factors.size(); ++group) {
        factors[group].step = static_cast<float>(rate_of(settings.learning_rate, settings.groups[group]));
        factors[group].decay = kept_of(settings.learning_rate, settings.groups[group]);
    }
    update_all(parameter, working, groups, [&]<class T>(T, std::int64_t first, std::int64_t last) {
        for_groups(groups.as<std::int32_t>(), first, last, [&](std::size_t group, std::int64_t at, std::int64_t many) {
            vector_.of<T>().elementwise->momentum(parameter.fp32() + at, from<T>(working, at), gradient.fp32() + at,
                                                  velocity.fp32() + at, factors[group], many);
        });
    });
}

void CpuBackend::step(Tensor parameter, Tensor working, Tensor direction, Tensor groups, Tensor decision,
                      const StepSettings& settings) {
    LOCKSTEP_ASSERT(direction.count() == parameter.count() && decision.count() == Decision::places);
    if (decision.fp64()[Decision::proceed] == 0) return;
    update_all(parameter, working, groups, [&]<class T>(T, std::int64_t first, std::int64_t last) {
        for_groups(groups.as<std::int32_t>(), first, last, [&](std::size_t number, std::int64_t at, std::int64_t many) {
            const WeightGroup& group = settings.groups[number];
            const double rate = rate_of(settings.learning_rate, group) * static_cast<double>(settings.scale);
            vector_.of<T>().elementwise->step(parameter.fp32() + at, from<T>(working, at), direction.fp32() + at,
                                              static_cast<float>(rate), kept_of(settings.learning_rate, group), many);
        });
    });
}

void CpuBackend::momentum_direction(Tensor direction, Tensor gradient, Tensor velocity, Tensor decision, float momentum,
                                    bool nesterov) {
    const std::int64_t count = direction.count();
    LOCKSTEP_ASSERT(gradient.count() == count && velocity.count() == count && decision.count() == Decision::places);
    if (decision.fp64()[Decision::proceed] == 0) return fill(direction, 0);
    const MomentumFactors factors = momentum_factors(decision.fp64(), momentum, nesterov);
    for_elements(count, memory_grain / 2, [&](std::int64_t first, std::int64_t last) {
        vector_.flat->momentum_direction(direction.fp32() + first, gradient.fp32() + first, velocity.fp32() + first,
                                         factors, last - first);
    });
}

void CpuBackend::normalize(Tensor y, Tensor x, Tensor totals) {
    LOCKSTEP_ASSERT(y.count() == x.count() && totals.count() == 2);
    const auto factor = static_cast<float>(1 / (std::sqrt(totals.fp64()[0]) + 1e-7));
    with_element(y, [&]<class T>(T) {
        for_elements(y.count(), memory_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->scaled(y.as<T>() + first, x.fp32() + first, factor, last - first);
        });
    });
}

void CpuBackend::blend(Tensor y, Tensor x, float y_share, float x_share) {
    LOCKSTEP_ASSERT(y.type() == x.type() && y.count() == x.count());
    with_element(y, [&]<class T>(T) {
        for_elements(y.count(), memory_grain, [&](std::int64_t first, std::int64_t last) {
            vector_.of<T>().elementwise->blend(y.as<T>() + first, x.as<T>() + first, y_share, x_share, last - first);
        });
    });
}

}  // namespace lockstep::kernels::cpu
