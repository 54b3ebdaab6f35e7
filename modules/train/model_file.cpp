#include "train/model_file.hpp"

#include <filesystem>
#include <vector>

#include "base/log.hpp"
#include "base/whole_file.hpp"
#include "cluster/agree.hpp"
#include "optim/schedule.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

std::vector<checkpoint::Entry> parameter_entries(const model::ParameterSet& parameters, kernels::Backend& backend) {
    kernels::Backend* device = backend.device().kind == DeviceKind::cpu ? nullptr : &backend;
    std::vector<checkpoint::Entry> entries;
    for (const auto& parameter : parameters.descriptions())
        entries.push_back(checkpoint::whole("parameters/" + parameter.name, parameters.value(parameter.name), device));
    return entries;
}

// The run's checkpoint folder, as it is called here. A relative one lies where the run was launched: what is left of
// the run folder's path without run.folder and run.name.
std::string checkpoint_folder(const config::RunDescription& run, const fs::path& run_folder) {
    const fs::path folder = fs::path(run.checkpoint.folder) / run.run.name;
    fs::path launched_in = fs::absolute(run_folder).lexically_normal();
    const fs::path own = (fs::path(run.run.folder) / run.run.name).lexically_normal();
    if (folder.is_absolute() || own.is_absolute()) return folder.string();
    if (!launched_in.has_filename()) launched_in = launched_in.parent_path();
    const std::string path = launched_in.string(), end = "/" + own.string();
    if (!path.ends_with(end)) return folder.string();
    return (fs::path(path.substr(0, path.size() - end.size() + 1)) / folder).lexically_proximate(fs::current_path());
}

// The file that is meant by a file's or a folder's name.
std::string newest_checkpoint(const std::string& name) {
    std::error_code ignored;
    if (!fs::is_directory(name, ignored)) return name;
    std::string folder = name;
    const std::string description = name + "/run.toml";
    if (fs::exists(description, ignored)) {
        const config::RunDescription run = config::parse_foreign_description(read_text_file(description), description);
        folder = checkpoint_folder(run, name);
    }
    const std::vector<std::string> all = checkpoint::list_checkpoints(folder);
    if (all.empty() && folder != name)
        throw usage_error("{}, which is the checkpoint.folder of {}, has no checkpoints here; name a checkpoint",
                          folder, description);
    if (all.empty()) throw usage_error("{} has no checkpoints; name a checkpoint or a run's folder", folder);
    log::info("checkpoint {}", all.back());
    return all.back();
}

}  // namespace

double inner_rate_factor(const ModelFile& file) {
    return optim::inner_rate_factor(file.description.model, file.description.schedule.warmup, file.contents.state.step);
}

ModelFile load_model(const std::string& name, kernels::Backend& backend, cluster::HostGroup& group) {
    ModelFile file;
    cluster::on_root(group, [&] { file.path = newest_checkpoint(name); });
    file.path = group.broadcast_text(std::move(file.path), 0);
    const std::string& checkpoint = file.path;
    cluster::together(group, [&] {
        file.contents = checkpoint::read_contents(checkpoint);
        // The optimizer may be another program's; the mixer may not.
        file.description = config::parse_foreign_description(file.contents.run_description, checkpoint);
        const auto& model = file.description.model;
        config::check(model);
        if (file.description.batch.length < 1)
            throw damaged_error("{} is damaged: its run description has batch.length = {}", checkpoint,
                                file.description.batch.length);
        file.parameters = std::make_unique<model::ParameterSet>(
            backend.device(), model::describe_parameters(model, model::whole_model(model)), false);
    });
    checkpoint::load(checkpoint, parameter_entries(*file.parameters, backend), group);
    return file;
}

}  // namespace lockstep::train
