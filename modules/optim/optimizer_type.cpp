#include "optim/optimizer_type.hpp"

namespace lockstep::optim {
namespace {

std::int64_t state_count_of(const OptimizerType& type, const model::ParameterDescription& parameter) {
    std::int64_t count = 0;
    for (const StateDescription& state : type.states(parameter)) count += element_count(state.shape);
    return count;
}

}  // namespace

double OptimizerType::bytes_moved(const model::ParameterDescription& parameter) const {
    const std::int64_t moved = 3 * element_count(parameter.shape) + 2 * state_count_of(*this, parameter);
    return static_cast<double>(moved) * sizeof(float);
}

std::int64_t state_count(const OptimizerType& type, const std::vector<model::ParameterDescription>& parameters) {
    std::int64_t count = 0;
    for (const model::ParameterDescription& parameter : parameters)
        if (parameter.trained) count += state_count_of(type, parameter);
    return count;
}

std::int64_t checkpoint_bytes(const OptimizerType& type, const config::ModelDescription& model) {
    const auto parameters = model::describe_parameters(model, model::whole_model(model));
    return (model::parameter_count(model) + state_count(type, parameters)) * std::int64_t{sizeof(float)};
}

}  // namespace lockstep::optim
