#include "optim/optimizer_type.hpp"

namespace lockstep::optim {
namespace {

std::int64_t state_count_of(const OptimizerType& type, const model::ParameterDescription& parameter,
                            bool averages = false) {
    std::int64_t count = 0;
    for (const StateDescription& state : states_of(type, averages, parameter)) count += element_count(state.shape);
    return count;
}

}  // namespace

double OptimizerType::bytes_moved(const model::ParameterDescription& parameter) const {
    const std::int64_t moved = 3 * element_count(parameter.shape) + 2 * state_count_of(*this, parameter);
    return static_cast<double>(moved) * sizeof(float);
}

std::vector<StateDescription> states_of(const OptimizerType& type, bool averages,
                                        const model::ParameterDescription& parameter) {
    std::vector<StateDescription> states = type.states(parameter);
    if (averages) states.push_back({average_state, parameter.shape, parameter.split});
    return states;
}

std::int64_t state_count(const OptimizerType& type, const std::vector<model::ParameterDescription>& parameters,
                         bool averages) {
    std::int64_t count = 0;
    for (const model::ParameterDescription& parameter : parameters)
        if (parameter.trained) count += state_count_of(type, parameter, averages);
    return count;
}

std::int64_t checkpoint_bytes(const OptimizerType& type, const config::ModelDescription& model, bool averages) {
    const auto parameters = model::describe_parameters(model, model::whole_model(model));
    return (model::parameter_count(model) + state_count(type, parameters, averages)) * std::int64_t{sizeof(float)};
}

}  // namespace lockstep::optim
