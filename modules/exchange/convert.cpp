#include "exchange/convert.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/open_file.hpp"
#include "base/utf8.hpp"
#include "base/whole_file.hpp"
#include "cluster/agree.hpp"
#include "config/run_description.hpp"
#include "data/tokenizer.hpp"
#include "exchange/folder.hpp"
#include "exchange/merged_model.hpp"
#include "exchange/peft.hpp"
#include "exchange/shards.hpp"
#include "exchange/stored_model.hpp"
#include "exchange/tokenizer.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::exchange {
namespace {

namespace fs = std::filesystem;

using checkpoint::parameters_prefix;

constexpr std::uint64_t all_bytes = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t bytes_at_once = std::uint64_t{32} << 20;  // and as much again, converted

bool exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path, ignored));
}

Error unfinished_exists(const std::string& unfinished) {
    return usage_error(
        "{} exists: another conversion is writing it, or a killed one left it behind; in that case remove it",
        unfinished);
}

void refuse_existing(const std::string& out, bool may_be_empty_folder) {
    std::error_code ignored;
    const bool empty_folder = fs::is_directory(fs::symlink_status(out, ignored)) && fs::is_empty(out, ignored);
    if (exists(out) && !(may_be_empty_folder && empty_folder))
        throw usage_error("{} already exists and is not overwritten; remove it, or give another name", out);
    const std::string unfinished = checkpoint::unfinished_name(out);
    if (exists(unfinished)) throw unfinished_exists(unfinished);
}

void make_folder_of(const std::string& out) {
    std::error_code error;
    const fs::path parent = fs::path(out).parent_path();
    if (!parent.empty()) fs::create_directories(parent, error);
    if (error) throw usage_error("the folder {} cannot be created: {}", parent.string(), error.message());
}

// What is written to a folder, the same on every rank.
struct Plan {
    Written written;
    std::string base;  // what adapters alone are beside
    std::vector<Correspondence> names;
    std::vector<Shard> shards;
};

// It is kept as it is, for other programs at least.
void warn_of_tokenizer(const checkpoint::Contents& contents) {
    if (contents.tokenizer_kind.empty()) return;
    try {
        static_cast<void>(data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files));
    } catch (const Error& error) {
        log::warning("the tokenizer is kept but cannot be used: {}", error.what());
    }
}

Written write_merged(const MergedModel& model) {
    try {
        return write_model(model.model());
    } catch (const Error& error) {
        if (!model.has_adapters()) throw;
        throw usage_error("{}; lockstep convert IN OUT.h5 merges the adapters into a checkpoint", error.what());
    }
}

Plan make_plan(const std::string& path, const MergedModel& model, const WayOut& options) {
    Plan plan;
    plan.written = write_merged(model);
    plan.names = correspondences(*plan.written.architecture, model.model());
    if (options.adapters) {
        if (!model.has_adapters()) throw usage_error("{} has no adapters; leave out --adapters", path);
        plan.names = adapter_correspondences(*plan.written.architecture, model.run().model);
        const std::string& base = model.contents().state.base;
        plan.base = !options.base.empty() ? options.base : base.empty() ? model.run().init.from : base;
        if (first_damage(plan.base) != std::string::npos)
            throw usage_error("the path of the adapters' model is not UTF-8, and {} cannot name it; rename a folder",
                              adapter_config_name);
    }
    plan.shards = plan_shards(plan.names, options.type, options.adapters ? all_bytes : options.shard_bytes);
    if (options.adapters) plan.shards.front().name = adapter_file_name;
    return plan;
}

// The files were made with their whole size, so that what is not written would be zeros.
void check_written(const Plan& plan, const ShardWriter& writer, cluster::HostGroup& group) {
    std::int64_t wanted = 0;
    for (const Correspondence& each : plan.names) wanted += element_count(each.shape);
    const auto written = static_cast<std::int64_t>(group.all_sum(static_cast<double>(writer.written())));
    if (written != wanted)
        throw fault_error("only {} of the model's {} elements were written", with_commas(written), with_commas(wanted));
}

// A folder that is this conversion's alone until it has its name.
void make_unfinished(const std::string& unfinished) {
    std::error_code error;
    const bool made = fs::create_directory(unfinished, error);
    if (error) throw usage_error("the folder {} cannot be created: {}", unfinished, error.message());
    if (!made) throw unfinished_exists(unfinished);
}

void publish(const std::string& unfinished, const std::string& out, const MergedModel& model, const Plan& plan,
             const WayOut& options) {
    if (options.adapters) {
        const Json config = adapter_config(*plan.written.architecture, model.run().model, plan.base);
        replace_file(unfinished + "/" + adapter_config_name, config.dump(2) + "\n");
    } else {
        if (plan.shards.size() > 1) replace_file(unfinished + "/" + index_file_name, index_text(plan.shards));
        write_tokenizer(unfinished, model.contents());
        Json config = plan.written.config;
        add_token_numbers(config, model.contents());
        config["torch_dtype"] = file_type(options.type).torch_word;
        replace_file(unfinished + "/" + config_file_name, config.dump(2) + "\n");
    }
    sync_folder(unfinished);
    rename_file(unfinished, out);
    sync_folder(fs::path(out).parent_path().string());
}

// This rank's share of the folder's tensors.
void copy_tensors(const Plan& plan, const checkpoint::Source& source, ShardWriter& writer,
                  const cluster::HostGroup& group, const checkpoint::StreamProgress& progress) {
    std::vector<checkpoint::TensorInfo> tensors;
    for (const Correspondence& each : plan.names) tensors.push_back({parameters_prefix + each.ours, each.shape});
    checkpoint::pass_through(
        tensors, source, bytes_at_once,
        [&](const checkpoint::TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values) {
            writer.write(tensor.path.substr(parameters_prefix.size()), first, count, values);
        },
        group, progress);
}

// All parameters of a model, in the order of checkpoints of runs.
std::vector<checkpoint::TensorInfo> tensors_of(const config::ModelDescription& model) {
    std::vector<checkpoint::TensorInfo> tensors;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        tensors.push_back({parameters_prefix + parameter.name, parameter.shape});
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return tensors;
}

void refuse_existing_checkpoint(const std::string& out) {
    if (out.ends_with('/')) throw usage_error("{}: a checkpoint is a file; name it without the slash", out);
    refuse_existing(out, false);
}

}  // namespace

Converted folder_to_checkpoint(const std::string& folder, const std::string& out, cluster::HostGroup& group,
                               const checkpoint::StreamProgress& progress, const std::string& base) {
    cluster::on_root(group, [&] { refuse_existing_checkpoint(out); });
    std::optional<Folder> whole;
    std::optional<AdapterFolder> adapters;
    const Folder* opened = nullptr;
    checkpoint::Contents contents;
    std::vector<checkpoint::TensorInfo> tensors;
    cluster::together(group, [&] {
        if (is_adapter_folder(folder))
            opened = &adapters.emplace(folder, base).base();
        else
            opened = &whole.emplace(folder);
        if (group.rank() == 0) warn_of_unknown_keys(*opened);
        const config::ModelDescription& model = adapters ? adapters->model() : opened->model();
        contents = opened->contents(model);
        if (group.rank() == 0) warn_of_tokenizer(contents);
        tensors = tensors_of(model);
    });
    cluster::on_root(group, [&] { make_folder_of(out); });
    checkpoint::write_from(out, contents, tensors, adapters ? adapters->source() : opened->source(), group, progress);
    return {std::string(opened->architecture().name), contents.tokenizer_kind, adapters.has_value()};
}

Converted checkpoint_to_checkpoint(const std::string& checkpoint, const std::string& out, const WayOut& options,
                                   cluster::HostGroup& group, const checkpoint::StreamProgress& progress) {
    cluster::on_root(group, [&] { refuse_existing_checkpoint(out); });
    std::optional<MergedModel> model;
    checkpoint::Contents contents;
    cluster::together(group, [&] {
        model.emplace(checkpoint, options.averages);
        contents = contents_of(model->model(), fs::path(out).stem().string(), model->run().batch.length);
        contents.tokenizer_kind = model->contents().tokenizer_kind;
        contents.tokenizer_files = model->contents().tokenizer_files;
    });
    const checkpoint::Source source = model->source(options.base, group, progress);
    cluster::on_root(group, [&] { make_folder_of(out); });
    checkpoint::write_from(out, contents, tensors_of(model->model()), source, group, progress);
    return {"", contents.tokenizer_kind, model->has_adapters()};
}

Converted checkpoint_to_folder(const std::string& checkpoint, const std::string& out_name, const WayOut& options,
                               cluster::HostGroup& group, const checkpoint::StreamProgress& progress) {
    const std::string out = without_slash(out_name), unfinished = checkpoint::unfinished_name(out);
    cluster::on_root(group, [&] { refuse_existing(out, true); });
    std::optional<MergedModel> model;
    Plan plan;
    cluster::together(group, [&] {
        model.emplace(checkpoint, options.averages);
        plan = make_plan(checkpoint, *model, options);
    });
    checkpoint::Source source;
    if (!options.adapters) {
        source = model->source(options.base, group, progress);
    } else {
        // They need no base; one that is named is checked.
        if (!options.base.empty())
            static_cast<void>(open_base(checkpoint, model->contents().state, options.base, group, progress));
        source = model->stored(group);
    }
    std::optional<ShardWriter> writer(std::in_place, unfinished, plan.names, plan.shards, options.type);
    cluster::on_root(group, [&] {
        make_folder_of(out);
        make_unfinished(unfinished);
    });
    try {
        cluster::on_root(group, [&] { writer->make_files(); });
        cluster::together(group, [&] { copy_tensors(plan, source, *writer, group, progress); });
        check_written(plan, *writer, group);
        cluster::together(group, [&] { writer->finish(); });
        cluster::on_root(group, [&] { publish(unfinished, out, *model, plan, options); });
    } catch (const Error&) {  // the same on every rank
        // On network file systems a file that a rank still has open stays, and its folder with it.
        writer.reset();
        group.barrier();
        std::error_code ignored;
        if (group.rank() == 0) fs::remove_all(unfinished, ignored);
        throw;
    }
    return {std::string(plan.written.architecture->name), model->contents().tokenizer_kind, model->has_adapters()};
}

}  // namespace lockstep::exchange
