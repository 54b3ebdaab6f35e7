#include "train/training_state.hpp"

#include <cmath>
#include <vector>

#include "layout/rank_share.hpp"
#include "optim/registry.hpp"
#include "train/gradient_exchange.hpp"
#include "train/initial_model.hpp"
#include "train/resume.hpp"

namespace lockstep::train {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const Launch& launch, const TrainingState& state,
                                                 const model::Part& part) {
    // A tied table exists on two stages and is counted on the first.
    const bool last = launch.groups.place.pipeline + 1 == launch.grid.pipeline;
    optim::NormPlan norm;
    norm.counted =
        optim::counted_pieces(*state.parameters, part, state.gradient_plan.tied && last && launch.grid.pipeline > 1);
    norm.in_blocks = launch.description.parallel.lanes > 0;
    const bool over_all = state.divided && !norm.in_blocks;
    norm.communicator = over_all ? launch.devices.communicator.get() : launch.groups.model.get();
    if (norm.in_blocks)
        norm.owners = state.divided ? launch.groups.replicas.get() : nullptr;
    else if (!state.divided)
        norm.replicas = launch.groups.replicas.get();
    kernels::LossScaling scaling;
    const config::LossScale& scale = launch.description.precision.loss_scale;
    const bool scaled = launch.description.precision.compute == config::Precision::fp16;
    if (scaled) scaling = {scale.growth_interval, scale.hysteresis, scale.minimum};
    auto optimizer = optim::make_optimizer({*launch.devices.backend, *state.parameters, launch.description.optimizer,
                                            norm, scaling, launch.groups.tensor.get(), state.host.get()});
    optimizer->set_progress({0, scaled ? scale.initial : 1, 0, 0});
    return optimizer;
}

}  // namespace

TrainingState make_training_state(const Launch& launch) {
    const config::RunDescription& description = launch.description;
    const model::Part part{launch.groups.place.tensor, launch.grid.tensor};
    const model::ParameterLayout layout(model::describe_parameters(description.model, launch.plan.chunks), part);
    const std::int64_t replica = launch.groups.place.replica(launch.grid);
    TrainingState state;
    state.divided = layout::divides_optimizer(description, launch.grid);
    state.gradient_plan =
        layout::plan_gradients(description, launch.grid, launch.groups.place, layout, launch.plan.chunks);
    model::Division division = layout::division_of(description, launch.grid, state.gradient_plan, replica);
    if (launch.devices.on_gpu() && description.parallel.offload != config::Offload::none) {
        layout::offload(division, pinned_memory(*launch.devices.gpu), layout);
        state.host = kernels::make_cpu_backend();
    }
    state.parameters =
        std::make_unique<model::ParameterSet>(launch.devices.backend->device(), layout, true,
                                              layout::compute_type(description.precision.compute), std::move(division));
    state.optimizer = make_optimizer(launch, state, part);
    const bool counts = state.divided || replica == 0;
    state.padding = std::llround(launch.control->all_sum(counts ? static_cast<double>(state.optimizer->padding()) : 0));
    return state;
}

void fill_training_state(const Launch& launch, TrainingState& state) {
    if (!launch.resume.path.empty()) return restore(launch, state);
    if (launch.description.init.from.empty() && launch.description.model.adapters.rank > 0)
        throw no_model_for_adapters();
    if (launch.description.init.from.empty())
        state.parameters->initialize(*launch.devices.backend, launch.description.run.seed);
    else
        load_initial_values(launch, state);
    state.optimizer->begin_averages([](const auto&) { return true; });
    gather_parameters(state, launch.groups);
}

}  // namespace lockstep::train
