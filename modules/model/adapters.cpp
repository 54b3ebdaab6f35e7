#include "model/adapters.hpp"

#include <algorithm>

#include "model/name_patterns.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {

bool is_adapter(const std::string& parameter) {
    return parameter.ends_with(adapter_a) || parameter.ends_with(adapter_b);
}

std::string adapted_layer(const std::string& adapter) {
    return adapter.substr(0, adapter.rfind('/'));
}

bool is_adapted(const config::ModelDescription& model, const std::string& layer) {
    const config::Adapters& adapters = model.adapters;
    return adapters.rank > 0 && std::any_of(adapters.match.begin(), adapters.match.end(),
                                            [&](const std::string& pattern) { return matches(pattern, layer); });
}

double adapter_scale(const config::ModelDescription& model) {
    const auto rank = static_cast<double>(model.adapters.rank);
    return model.adapters.alpha > 0 ? model.adapters.alpha / rank : 1;
}

void check_adapters(const config::ModelDescription& model) {
    if (model.adapters.rank == 0) return;
    config::ModelDescription all = model;
    all.adapters.match = {"*"};
    std::vector<ParameterDescription> layers;
    for (ParameterDescription parameter : describe_parameters(all, whole_model(all))) {
        if (!parameter.name.ends_with(adapter_a)) continue;
        parameter.name = adapted_layer(parameter.name);
        layers.push_back(std::move(parameter));
    }
    for (const std::string& pattern : model.adapters.match)
        check_pattern(pattern, "model.adapters.match", layers, "linear layer");
}

}  // namespace lockstep::model
