#include "optim/optimizer_type.hpp"

#include <map>

#include "kernels/counting_backend.hpp"
#include "model/frozen.hpp"
#include "optim/registry.hpp"

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

std::vector<kernels::Operation> products_of_update(const config::OptimizerSection& settings, const OptimizerType& type,
                                                   const std::vector<model::ParameterDescription>& parameters,
                                                   Type of_products, DeviceKind device) {
    struct Kind {
        std::vector<kernels::Operation> operations;
        double times = 0;
    };
    std::map<std::pair<Shape, Granularity::Unit>, Kind> kinds;
    for (const model::ParameterDescription& parameter : parameters) {
        if (!parameter.trained) continue;
        Kind& kind = kinds[{parameter.shape, type.granularity(parameter).unit}];
        if (kind.times == 0) {
            kernels::CountingBackend counting(device);
            type.issue_products(counting, settings, parameter, of_products);
            kind.operations = counting.take();
        }
        kind.times += 1;
    }
    std::vector<kernels::Operation> all;
    for (const auto& [shape, kind] : kinds)
        for (kernels::Operation operation : kind.operations) {
            operation.times *= kind.times;
            all.push_back(operation);
        }
    return all;
}

std::int64_t state_count(const OptimizerType& type, const std::vector<model::ParameterDescription>& parameters,
                         bool averages) {
    std::int64_t count = 0;
    for (const model::ParameterDescription& parameter : parameters)
        if (parameter.trained) count += state_count_of(type, parameter, averages);
    return count;
}

std::int64_t checkpoint_bytes(const config::RunDescription& run) {
    const config::ModelDescription& model = run.model;
    const auto parameters = model::describe_parameters(model, model::whole_model(model));
    const std::int64_t values =
        run.checkpoint.adapters_alone ? model::trained_parameter_count(model) : model::parameter_count(model);
    return (values + state_count(optimizer_of(run.optimizer), parameters, run.optimizer.averages())) *
           std::int64_t{sizeof(float)};
}

}  // namespace lockstep::optim
