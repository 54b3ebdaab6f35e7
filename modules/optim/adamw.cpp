#include "optim/adamw.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::optim {

AdamW::AdamW(kernels::Backend& backend, model::ParameterSet& parameters, const config::OptimizerSection& settings)
    : backend_(backend),
      parameters_(parameters),
      settings_(settings),
      memory_(backend.device(), 2 * parameters.all_values().bytes(), "optimizer moments") {
    const std::int64_t count = parameters.all_values().count();
    all_moments_ = memory_.allocate(Type::fp32, {2 * count});
    first_moment_ = all_moments_.slice(0, count);
    second_moment_ = all_moments_.slice(count, count);
}

double AdamW::gradient_norm() const {
    return std::sqrt(backend_.sum_of_squares(parameters_.all_gradients()));
}

bool AdamW::decays(const model::ParameterDescription& parameter) const {
    return settings_.decay == "all" || parameter.matrix;
}

void AdamW::update(double learning_rate, double gradient_norm, std::int64_t step) {
    const double factor = settings_.clip > 0 ? std::min(1.0, settings_.clip / (gradient_norm + 1e-6)) : 1.0;
    kernels::Backend::AdamW update{static_cast<float>(learning_rate),
                                   static_cast<float>(settings_.beta1),
                                   static_cast<float>(settings_.beta2),
                                   static_cast<float>(settings_.epsilon),
                                   static_cast<float>(settings_.weight_decay),
                                   static_cast<float>(factor),
                                   step};
    const auto& descriptions = parameters_.descriptions();
    // Neighbours that decay alike are one call: padding between them is zero in value, gradient and moments, and stays
    // so.
    for (std::size_t first = 0; first < descriptions.size();) {
        std::size_t last = first + 1;
        while (last < descriptions.size() && decays(descriptions[last]) == decays(descriptions[first])) ++last;
        const std::int64_t begin = parameters_.offset(first);
        const std::int64_t end =
            last < descriptions.size() ? parameters_.offset(last) : parameters_.all_values().count();
        update.weight_decay = decays(descriptions[first]) ? static_cast<float>(settings_.weight_decay) : 0;
        const auto cut = [&](Tensor all) { return all.slice(begin, end - begin); };
        backend_.adamw(cut(parameters_.all_values()), cut(parameters_.all_gradients()), cut(first_moment_),
                       cut(second_moment_), update);
        first = last;
    }
}

}  // namespace lockstep::optim
