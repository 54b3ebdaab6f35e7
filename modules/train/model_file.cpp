#include "train/model_file.hpp"

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cluster/agree.hpp"
#include "exchange/merged_model.hpp"
#include "exchange/stored_model.hpp"
#include "optim/schedule.hpp"
#include "train/initial_model.hpp"

namespace lockstep::train {
namespace {

std::vector<checkpoint::Entry> parameter_entries(const model::ParameterSet& parameters, kernels::Backend& backend,
                                                 bool averages) {
    kernels::Backend* device = backend.device().kind == DeviceKind::cpu ? nullptr : &backend;
    std::vector<checkpoint::Entry> entries;
    for (const auto& parameter : parameters.descriptions()) {
        const std::string path = checkpoint::parameters_prefix + parameter.name;
        const bool averaged = averages && parameter.trained;
        entries.push_back(checkpoint::whole(averaged ? checkpoint::averages_prefix + parameter.name : path,
                                            parameters.value(parameter.name), device));
        if (averaged) entries.push_back(checkpoint::skipped(path, parameter.shape));
    }
    return entries;
}

}  // namespace

double inner_rate_factor(const ModelFile& file) {
    return optim::inner_rate_factor(file.description.model, file.description.schedule.warmup, file.contents.state.step);
}

ModelFile load_model(const std::string& name, kernels::Backend& backend, cluster::HostGroup& group, bool averages,
                     const std::string& base) {
    ModelFile file;
    file.path = newest_checkpoint(name, group);
    if (group.rank() == 0 && file.path != name) log::info("checkpoint {}", file.path);
    const std::string& checkpoint = file.path;
    std::optional<exchange::StoredModel> stored;
    cluster::together(group, [&] {
        stored.emplace(checkpoint);
        if (stored->folder() && group.rank() == 0) exchange::warn_of_unknown_keys(*stored->folder());
        file.contents = stored->contents();
        // The optimizer may be another program's; the mixer may not.
        file.description = config::parse_foreign_description(file.contents.run_description, checkpoint);
        const auto& model = file.description.model;
        config::check(model);
        if (averages && stored->folder())
            throw usage_error("{} is a folder in the Hugging Face layout, which has no averages; leave out --ema",
                              checkpoint);
        if (averages) exchange::check_has_averages(checkpoint, file.description);
        if (file.description.batch.length < 1)
            throw damaged_error("{} is damaged: its run description has batch.length = {}", checkpoint,
                                file.description.batch.length);
        file.parameters = std::make_unique<model::ParameterSet>(
            backend.device(), model::describe_parameters(model, model::whole_model(model)), false);
    });
    const auto beside = exchange::open_base(checkpoint, file.contents.state, newest_checkpoint(base, group), group);
    std::vector<checkpoint::Entry> entries = parameter_entries(*file.parameters, backend, averages);
    if (beside) beside->load_as_base(exchange::take_base_entries(entries), group);
    stored->load(entries, group);
    return file;
}

}  // namespace lockstep::train
