#include "train/initial_model.hpp"

#include <fmt/ranges.h>

#include <filesystem>
#include <optional>

#include "base/log.hpp"
#include "base/whole_file.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/courses.hpp"
#include "checkpoint/stream.hpp"
#include "cluster/agree.hpp"
#include "model/adapters.hpp"
#include "train/checkpoint_contents.hpp"
#include "train/launch.hpp"
#include "train/resume.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// The run's checkpoint folder, as it is called here. A relative one lies where the run was launched: what is left of
// the run folder's path without run.folder and run.name.
std::string checkpoints_beside(const fs::path& run_folder, const config::RunDescription& run) {
    const fs::path folder = config::checkpoint_folder(run);
    std::error_code nowhere;  // where the current folder was removed
    fs::path launched_in = fs::absolute(run_folder, nowhere).lexically_normal();
    const fs::path own = fs::path(config::run_folder(run)).lexically_normal();
    if (folder.is_absolute() || own.is_absolute()) return folder.string();
    if (!launched_in.has_filename()) launched_in = launched_in.parent_path();
    const std::string path = launched_in.string(), end = "/" + own.string();
    if (!path.ends_with(end)) return folder.string();
    const fs::path found = fs::path(path.substr(0, path.size() - end.size() + 1)) / folder;
    const fs::path here = fs::current_path(nowhere);
    return here.empty() ? found : found.lexically_proximate(here);
}

// Shared or local ones.
bool has_checkpoints(const std::string& folder) {
    return !checkpoint::list_checkpoints(folder).empty() || !checkpoint::read_courses(folder).empty();
}

// The description that holds the model, and its file. A run that has checkpoints is one that will be resumed: its own.
struct Origin {
    std::string path, description;
};

Origin origin_of_model(const config::RunDescription& run) {
    const std::string own = config::run_folder(run) + "/run.toml";
    std::error_code ignored;
    if (has_checkpoints(config::checkpoint_folder(run)) && fs::exists(own, ignored)) return {own, read_text_file(own)};
    try {
        const std::string path = newest_checkpoint(run.init.from);
        return {path, exchange::StoredModel(path).contents().run_description};
    } catch (const Error& problem) {
        throw Error(problem.code(), fmt::format("init.from = {}: {}", run.init.from, problem.what()));
    }
}

// `path`: of what holds it.
config::ModelDescription model_to_begin_with(const config::RunDescription& run, cluster::HostGroup& group,
                                             std::string& path) {
    Origin origin;
    cluster::on_root(group, [&] { origin = origin_of_model(run); });
    origin.path = group.broadcast_text(std::move(origin.path), 0);
    origin.description = group.broadcast_text(std::move(origin.description), 0);
    path = origin.path;
    config::ModelDescription model = config::parse_foreign_description(origin.description, origin.path).model;
    model.frozen.clear();  // what is trained is each run's own
    // As if it were not given: with another width the width is what does not fit.
    bool divides_width = true;
    for (std::int64_t block = 0; block < model.period(); ++block)
        divides_width = divides_width && model.layer(block).query_columns() == model.width;
    if (divides_width) model.head_widths = {0};
    return model;
}

void warn_of_another_tokenizer(const Launch& launch, const checkpoint::Contents& contents, const std::string& path) {
    const RunData& data = launch.data;
    if (data.tokenizer_kind.empty() || contents.tokenizer_kind.empty()) return;  // not known
    const bool same_kind = data.tokenizer_kind == contents.tokenizer_kind;
    if (data::same_tokenizer(data.tokenizer_kind, data.tokenizer_files, contents.tokenizer_kind,
                             contents.tokenizer_files))
        return;
    log::warning("{} has a different {} from this data ({}): its token ids stand for other text", path,
                 same_kind ? "tokenizer model" : "tokenizer", data.tokenizer_kind);
}

// `what`: "init.from = …", or the run's own description.
void check_same_model(const config::RunDescription& run, const config::RunDescription& before,
                      const std::string& what) {
    config::RunDescription there = before;
    if (there.model.adapters.rank == 0) there.model.adapters = run.model.adapters;  // begun by this run
    const std::vector<std::string> differences = model_differences(run, there);
    if (!differences.empty())
        throw usage_error("{} is another model: {}; omit these keys of [model]", what,
                          fmt::format("{}", fmt::join(differences, "; ")));
}

// Collective. Usage error where the checkpoint is of another model than the run.
exchange::StoredModel find_initial_model(const Launch& launch) {
    const config::RunDescription& run = launch.description;
    const std::string path = newest_checkpoint(run.init.from, *launch.control);
    std::optional<exchange::StoredModel> initial;
    cluster::together(*launch.control, [&] {
        initial.emplace(path);
        check_same_model(run, config::parse_foreign_description(initial->contents().run_description, path),
                         "init.from = " + path);
    });
    return std::move(*initial);
}

}  // namespace

void name_base(const exchange::StoredModel& base, cluster::HostGroup& group, checkpoint::State& state) {
    cluster::on_root(group, [&] { state.base = fs::weakly_canonical(base.path()).string(); });
    state.base = group.broadcast_text(std::move(state.base), 0);
    if (state.base_checksum.empty()) state.base_checksum = base.checksum(group);
    if (group.rank() == 0)
        log::info("checkpoints hold only the adapters; their base model is {} (checksum {})", state.base,
                  state.base_checksum);
}

std::string checkpoint_folder_of(const std::string& folder) {
    std::error_code ignored;
    const std::string description = folder + "/run.toml";
    if (!fs::exists(description, ignored)) return folder;
    return checkpoints_beside(folder, config::parse_foreign_description(read_text_file(description), description));
}

std::string newest_checkpoint(const std::string& name) {
    const fs::path file = name;
    if (file.extension() == ".safetensors" || file.filename() == "config.json")
        throw usage_error("{} is one file of a Hugging Face folder; name the folder", name);
    std::error_code ignored;
    if (!fs::is_directory(name, ignored) || exchange::is_folder(name)) return name;
    exchange::check_has_config(name);
    const std::string folder = checkpoint_folder_of(name);
    const std::vector<std::string> all = checkpoint::list_checkpoints(folder);
    if (all.empty() && folder != name)
        throw usage_error("{}, the checkpoint.folder of {}/run.toml, has no checkpoints here; name a checkpoint",
                          folder, name);
    if (all.empty()) throw usage_error("{} has no checkpoints; name a checkpoint or a run's folder", folder);
    return all.back();
}

std::string newest_checkpoint(const std::string& name, cluster::HostGroup& group) {
    std::string path;
    cluster::on_root(group, [&] {
        if (!name.empty()) path = newest_checkpoint(name);
    });
    return group.broadcast_text(std::move(path), 0);
}

config::RunDescription read_run(const std::string& path, const std::vector<std::string>& settings,
                                cluster::HostGroup& group) {
    std::optional<config::RunDescription> before;  // of which only the model counts
    std::string origin;
    config::RunDescription run = config::read_run_description(path, settings, [&](const config::RunDescription& given) {
        before.emplace().model = model_to_begin_with(given, group, origin);
        return before->model;
    });
    // First, before other errors about a model made of two halves.
    if (before) {
        config::resolve(before->model);
        const bool own = origin == config::run_folder(run) + "/run.toml";
        check_same_model(run, *before, own ? origin : "init.from = " + origin);
    }
    return run;
}

std::string base_given(const Launch& launch) {
    return newest_checkpoint(launch.description.init.base, *launch.control);
}

Error no_model_for_adapters() {
    return usage_error(
        "model.adapters needs a base model to train adapters for: set init.from (--init-from) to a checkpoint, a run's "
        "folder or a Hugging Face folder");
}

void check_initial_model(const Launch& launch) {
    const config::RunDescription& run = launch.description;
    const bool has_adapters = run.model.adapters.rank > 0;
    if ((run.init.from.empty() && !has_adapters) || !launch.options.resume_file.empty()) return;
    bool begins = false;
    cluster::on_root(*launch.control, [&] { begins = !has_checkpoints(launch.folders.checkpoint_path); });
    if (launch.control->all_maximum(begins ? 1 : 0) == 0) return;
    if (run.init.from.empty()) throw no_model_for_adapters();
    const exchange::StoredModel initial = find_initial_model(launch);
    exchange::check_base(initial.path(), initial.contents().state, base_given(launch), *launch.control);
}

void load_initial_values(const Launch& launch, TrainingState& state) {
    const exchange::StoredModel initial = find_initial_model(launch);
    const std::string& path = initial.path();
    if (launch.root()) {
        if (initial.folder()) exchange::warn_of_unknown_keys(*initial.folder());
        warn_of_another_tokenizer(launch, initial.contents(), path);
    }
    const std::optional<exchange::StoredModel> base =
        exchange::open_base(path, initial.contents().state, base_given(launch), *launch.control);
    const config::RunDescription there = config::parse_foreign_description(initial.contents().run_description, path);
    const bool new_adapters = launch.description.model.adapters.rank > 0 && there.model.adapters.rank == 0;
    kernels::Backend& backend = *launch.devices.backend;
    if (new_adapters)
        state.parameters->initialize(backend, launch.description.run.seed,
                                     [](const auto& parameter) { return model::is_adapter(parameter.name); });
    std::vector<checkpoint::Entry> entries = checkpoint_entries(state, launch.devices);
    std::erase_if(entries, [&](const checkpoint::Entry& entry) {
        return !entry.path.starts_with(checkpoint::parameters_prefix) ||
               (new_adapters && model::is_adapter(entry.path));
    });
    if (base) base->load_as_base(exchange::take_base_entries(entries), *launch.control);
    initial.load(entries, *launch.control);
    if (launch.description.checkpoint.adapters_alone) {
        state.counters.base_checksum = initial.contents().state.base_checksum;
        name_base(base ? *base : initial, *launch.control, state.counters);
    }
    state.parameters->refresh_working(backend);
    log::info("parameters from {}{}", path, new_adapters ? ", with new adapters" : "");
}

}  // namespace lockstep::train
