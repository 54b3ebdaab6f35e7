#include "optim/adamw.hpp"

#include <vector>

namespace lockstep::optim {
namespace {
constexpr std::int64_t unit = 16, units_a_word = 32;  // how Backend::adamw is told which elements decay
}

AdamW::AdamW(kernels::Backend& backend, model::ParameterSet& parameters, const config::OptimizerSection& settings)
    : backend_(backend),
      parameters_(parameters),
      settings_(settings),
      memory_(backend.device(), 2 * parameters.all_values().bytes() + Arena::device_alignment, "optimizer moments") {
    const std::int64_t count = parameters.all_values().count();
    all_moments_ = memory_.allocate(Type::fp32, {2 * count});
    first_moment_ = all_moments_.slice(0, count);
    second_moment_ = all_moments_.slice(count, count);
    const auto plan = [&](Arena& arena) {
        decays_ = arena.allocate(Type::int32, {(count + unit * units_a_word - 1) / (unit * units_a_word)});
        decision_ = arena.allocate(Type::fp64, {8});
        squares_ = arena.allocate(Type::fp64, {2});
    };
    Arena measure(backend.device());
    plan(measure);
    small_ = Arena(backend.device(), measure.peak(), "optimizer state");
    plan(small_);
    mark_decaying();
    set_updates(0);
}

void AdamW::mark_decaying() {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(decays_.count()));
    const auto& descriptions = parameters_.descriptions();
    for (std::size_t i = 0; i < descriptions.size(); ++i) {
        if (settings_.decay != "all" && !descriptions[i].matrix) continue;
        // Padding is zero in value, gradient and moments, so that a unit's rest may decay too.
        const std::int64_t first = parameters_.offset(i) / unit;
        const std::int64_t last = first + (element_count(descriptions[i].shape) + unit - 1) / unit;
        for (std::int64_t at = first; at < last; ++at)
            words[static_cast<std::size_t>(at / units_a_word)] |= 1u << (at % units_a_word);
    }
    backend_.upload(decays_, words.data());
}

void AdamW::set_updates(std::int64_t updates) {
    std::vector<double> decision(8);
    decision[kernels::Decision::updates] = static_cast<double>(updates);
    decision[kernels::Decision::loss_scale] = 1;
    backend_.upload(decision_, decision.data());
}

void AdamW::update(double learning_rate, Tensor loss) {
    backend_.sum_of_squares(squares_, parameters_.all_gradients(), kernels::Accumulate::no);
    backend_.decide_update(decision_, loss, squares_, settings_.clip, kernels::LossScaling{});
    backend_.adamw(
        parameters_.all_values(), parameters_.all_working(), parameters_.all_gradients(), first_moment_, second_moment_,
        decays_, decision_,
        {static_cast<float>(learning_rate), static_cast<float>(settings_.beta1), static_cast<float>(settings_.beta2),
         static_cast<float>(settings_.epsilon), static_cast<float>(settings_.weight_decay)});
}

}  // namespace lockstep::optim
