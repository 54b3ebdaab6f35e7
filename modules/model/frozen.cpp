#include "model/frozen.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "model/adapters.hpp"
#include "model/name_patterns.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {

bool freezes(const config::ModelDescription& model) {
    return !model.frozen.empty() || model.adapters.rank > 0;
}

bool is_frozen(const config::ModelDescription& model, const std::string& name) {
    if (model.adapters.rank > 0) return !is_adapter(name);
    return std::any_of(model.frozen.begin(), model.frozen.end(),
                       [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_frozen(const config::ModelDescription& model) {
    check_adapters(model);
    if (model.frozen.empty()) return;
    const auto parameters = describe_parameters(model, whole_model(model));
    for (const std::string& pattern : model.frozen) check_pattern(pattern, "model.frozen", parameters);
    if (std::none_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; }))
        throw usage_error("model.frozen leaves nothing to train: its patterns match all {} parameters of the model",
                          parameters.size());
}

bool trains_before(const config::ModelDescription& model, std::int64_t block) {
    const StageRange range{0, block, true, false};
    const auto parameters = describe_parameters(model, range);
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; });
}

std::int64_t trained_parameter_count(const config::ModelDescription& model) {
    std::int64_t count = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model)))
        if (parameter.trained) count += element_count(parameter.shape);
    return count;
}

}  // namespace lockstep::model
