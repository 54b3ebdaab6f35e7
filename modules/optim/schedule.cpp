#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/mixers/registry.hpp"

namespace lockstep::optim {

double learning_rate(const config::ScheduleSection& schedule, std::int64_t steps, std::int64_t step) {
    const double peak = schedule.peak_lr, last = schedule.final_lr;
    if (step < schedule.warmup) return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup);
    const auto share = [&](std::int64_t first) {  // progress from step `first` to the last
        return std::clamp(
            static_cast<double>(step - first) / static_cast<double>(std::max<std::int64_t>(1, steps - first)), 0.0,
            1.0);
    };
    switch (schedule.kind) {
        case config::ScheduleKind::linear:
            return peak + (last - peak) * share(schedule.warmup);
        case config::ScheduleKind::cosine:
            return last + (peak - last) * 0.5 * (1 + std::cos(std::numbers::pi * share(schedule.warmup)));
        case config::ScheduleKind::wsd: {
            const std::int64_t first = std::max(schedule.warmup, steps - schedule.final_decay(steps));
            return step <= first ? peak : peak + (last - peak) * share(first);
        }
        case config::ScheduleKind::constant:
            break;
    }
    return peak;
}

double inner_rate_factor(const config::ModelDescription& model, std::int64_t warmup, std::int64_t step) {
    if (step >= warmup) return 1;
    // Mixers without a warm-up have 1, and heed no factor.
    double start = 1;
    for (const model::MixerType* type : model::mixer_types(model))
        start = std::min(start, type->initial_inner_rate(model));
    return start + (1 - start) * static_cast<double>(step) / static_cast<double>(warmup);
}

}  // namespace lockstep::optim
