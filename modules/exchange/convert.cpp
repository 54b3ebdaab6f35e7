#include "exchange/convert.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/open_file.hpp"
#include "base/whole_file.hpp"
#include "cluster/agree.hpp"
#include "config/run_description.hpp"
#include "data/tokenizer.hpp"
#include "exchange/adapter_merge.hpp"
#include "exchange/folder.hpp"
#include "exchange/peft.hpp"
#include "exchange/shards.hpp"
#include "exchange/stored_model.hpp"
#include "exchange/tokenizer.hpp"
#include "model/adapters.hpp"
#include "model/mixers/registry.hpp"
#include "optim/schedule.hpp"

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
        "{} exists: another conversion is writing it, or one that was killed has left it; in that case remove it",
        unfinished);
}

void refuse_existing(const std::string& out, bool may_be_empty_folder) {
    std::error_code ignored;
    const bool empty_folder = fs::is_directory(fs::symlink_status(out, ignored)) && fs::is_empty(out, ignored);
    if (exists(out) && !(may_be_empty_folder && empty_folder))
        throw usage_error("{} exists and is not replaced; remove it, or name another", out);
    const std::string unfinished = checkpoint::unfinished_name(out);
    if (exists(unfinished)) throw unfinished_exists(unfinished);
}

void make_folder_of(const std::string& out) {
    std::error_code error;
    const fs::path parent = fs::path(out).parent_path();
    if (!parent.empty()) fs::create_directories(parent, error);
    if (error) throw usage_error("the folder {} cannot be made: {}", parent.string(), error.message());
}

// What is written, the same on every rank.
struct Plan {
    checkpoint::Contents contents;
    config::ModelDescription model;  // with the adapters, which are merged
    Written written;
    std::string base;  // what adapters alone are beside
    std::vector<Correspondence> names;
    std::vector<Shard> shards;
};

// The checkpoint must hold just the parameters of its own description.
void check_tensors(const std::string& path, std::vector<Correspondence> names, const config::ModelDescription& model,
                   bool adapters_alone) {
    if (adapters_alone) names.clear();
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        if (model::is_adapter(parameter.name)) names.push_back({parameter.name, parameter.shape, ""});
    std::map<std::string, Shape> held;
    for (const auto& tensor : checkpoint::list_tensors(path)) {
        if (tensor.path.starts_with(parameters_prefix))
            held.emplace(tensor.path.substr(parameters_prefix.size()), tensor.shape);
        const bool average = tensor.path.starts_with(checkpoint::averages_prefix);
        const auto named = std::find_if(names.begin(), names.end(), [&](const Correspondence& each) {
            return average && tensor.path.substr(checkpoint::averages_prefix.size()) == each.ours;
        });
        if (average && (named == names.end() || named->shape != tensor.shape))
            throw damaged_error("{} is damaged: its run description has no {} of {}", path, tensor.path,
                                shape_text(tensor.shape));
    }
    for (const Correspondence& each : names) {
        const auto found = held.find(each.ours);
        if (found == held.end())
            throw damaged_error("{} is damaged: it lacks {}, which its run description asks for", path, each.ours);
        if (found->second != each.shape)
            throw damaged_error("{} is damaged: {} is {}, by its run description {}", path, each.ours,
                                shape_text(found->second), shape_text(each.shape));
        held.erase(found);
    }
    if (!held.empty())
        throw damaged_error("{} is damaged: it holds {}, which its run description does not have", path,
                            held.begin()->first);
}

// It is kept as it is, for other programs at least.
void warn_of_tokenizer(const checkpoint::Contents& contents) {
    if (contents.tokenizer_kind.empty()) return;
    try {
        static_cast<void>(data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files));
    } catch (const Error& error) {
        log::warning("the tokenizer is kept but cannot be used: {}", error.what());
    }
}

Plan make_plan(const std::string& path, const WayOut& options) {
    Plan plan;
    plan.contents = checkpoint::read_contents(path);
    const config::RunDescription run = config::parse_foreign_description(plan.contents.run_description, path);
    config::ModelDescription model = plan.model = run.model;
    config::check(model);
    model.adapters = {};
    // Its warm-up is the run's.
    const double factor = optim::inner_rate_factor(model, run.schedule.warmup, plan.contents.state.step);
    // Of hybrids, which are refused below, it would be each one's.
    model::mixer_type(model.mixer(0)).settle_inner_rate(model, factor);
    if (options.averages) check_has_averages(path, run);
    plan.written = write_model(model);
    plan.names = correspondences(*plan.written.architecture, model);
    const std::string& base = plan.contents.state.base;
    check_tensors(path, plan.names, plan.model, !base.empty());
    if (options.adapters) {
        if (plan.model.adapters.rank == 0) throw usage_error("{} has no adapters; leave out --adapters", path);
        plan.names = adapter_correspondences(*plan.written.architecture, plan.model);
        plan.base = !options.base.empty() ? options.base : base.empty() ? run.init.from : base;
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
        throw fault_error("{} of {} elements of the model were written", with_commas(written), with_commas(wanted));
}

// A folder that is this conversion's alone until it has its name.
void make_unfinished(const std::string& unfinished) {
    std::error_code error;
    const bool made = fs::create_directory(unfinished, error);
    if (error) throw usage_error("the folder {} cannot be made: {}", unfinished, error.message());
    if (!made) throw unfinished_exists(unfinished);
}

void publish(const std::string& unfinished, const std::string& out, const Plan& plan, const WayOut& options) {
    if (options.adapters) {
        const Json config = adapter_config(*plan.written.architecture, plan.model, plan.base);
        replace_file(unfinished + "/" + adapter_config_name, config.dump(2) + "\n");
    } else {
        if (plan.shards.size() > 1) replace_file(unfinished + "/" + index_file_name, index_text(plan.shards));
        write_tokenizer(unfinished, plan.contents);
        Json config = plan.written.config;
        add_token_numbers(config, plan.contents);
        config["torch_dtype"] = file_type(options.type).torch_word;
        replace_file(unfinished + "/" + config_file_name, config.dump(2) + "\n");
    }
    sync_folder(unfinished);
    rename_file(unfinished, out);
    sync_folder(fs::path(out).parent_path().string());
}

// Reads the parameters, or their averages and the parameters that are frozen, into the folder's files. `base`: of a
// checkpoint of adapters alone.
void copy_tensors(const std::string& checkpoint, const std::optional<StoredModel>& base, const Plan& plan,
                  const WayOut& options, ShardWriter& writer, cluster::HostGroup& group,
                  const checkpoint::StreamProgress& progress) {
    if (options.adapters) {
        const std::string& prefix = options.averages ? checkpoint::averages_prefix : parameters_prefix;
        for (const Correspondence& each : plan.names)
            checkpoint::read_through(
                checkpoint, prefix + each.ours, bytes_at_once,
                [&](const checkpoint::TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values) {
                    checkpoint::check_finite(checkpoint, tensor.path, values, count);
                    writer.write(each.ours, first, count, values);
                },
                group, progress);
        return;
    }
    const AdapterMerge adapters(checkpoint, plan.model, options.averages, group);
    std::vector<float> merged;
    if (base)
        return base->read_through(
            [&](const std::string& name, std::int64_t first, std::int64_t count, const float* values) {
                writer.write(name, first, count, adapters.apply(name, first, count, values, merged));
            },
            group, progress);
    std::set<std::string> averaged;
    const auto copy = [&](const std::string& prefix) {
        checkpoint::read_through(
            checkpoint, prefix, bytes_at_once,
            [&](const checkpoint::TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values) {
                const std::string name = tensor.path.substr(prefix.size());
                if (prefix == parameters_prefix && averaged.count(name) > 0) return;
                checkpoint::check_finite(checkpoint, tensor.path, values, count);
                if (!model::is_adapter(name))
                    writer.write(name, first, count, adapters.apply(name, first, count, values, merged));
            },
            group, progress);
    };
    if (options.averages) {
        cluster::together(group, [&] {
            for (const checkpoint::TensorInfo& tensor : checkpoint::list_tensors(checkpoint))
                if (tensor.path.starts_with(checkpoint::averages_prefix))
                    averaged.insert(tensor.path.substr(checkpoint::averages_prefix.size()));
        });
        copy(checkpoint::averages_prefix);
    }
    if (std::any_of(plan.names.begin(), plan.names.end(),
                    [&](const Correspondence& each) { return averaged.count(each.ours) == 0; }))
        copy(parameters_prefix);
}

}  // namespace

void check_has_averages(const std::string& checkpoint, const config::RunDescription& description) {
    if (!description.optimizer.averages())
        throw usage_error("{} has no averages of its parameters: its run had optimizer.ema = 0; leave out --ema",
                          checkpoint);
}

Converted folder_to_checkpoint(const std::string& folder, const std::string& out, cluster::HostGroup& group,
                               const checkpoint::StreamProgress& progress, const std::string& base) {
    cluster::on_root(group, [&] {
        if (out.ends_with('/')) throw usage_error("{}: a checkpoint is a file; name it without the slash", out);
        refuse_existing(out, false);
    });
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
        for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
            tensors.push_back({parameters_prefix + parameter.name, parameter.shape});
        // As in checkpoints of runs.
        std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    });
    cluster::on_root(group, [&] { make_folder_of(out); });
    checkpoint::write_from(out, contents, tensors, adapters ? adapters->source() : opened->source(), group, progress);
    return {std::string(opened->architecture().name), contents.tokenizer_kind, adapters.has_value()};
}

Converted checkpoint_to_folder(const std::string& checkpoint, const std::string& out_name, const WayOut& options,
                               cluster::HostGroup& group, const checkpoint::StreamProgress& progress) {
    const std::string out = without_slash(out_name), unfinished = checkpoint::unfinished_name(out);
    cluster::on_root(group, [&] { refuse_existing(out, true); });
    Plan plan;
    cluster::together(group, [&] { plan = make_plan(checkpoint, options); });
    std::optional<StoredModel> base;  // adapters that are written by themselves need none
    if (!options.adapters || !options.base.empty())
        base = open_base(checkpoint, plan.contents.state, options.base, group, progress);
    std::optional<ShardWriter> writer(std::in_place, unfinished, plan.names, plan.shards, options.type);
    cluster::on_root(group, [&] {
        make_folder_of(out);
        make_unfinished(unfinished);
    });
    try {
        cluster::on_root(group, [&] { writer->make_files(); });
        copy_tensors(checkpoint, base, plan, options, *writer, group, progress);
        check_written(plan, *writer, group);
        cluster::together(group, [&] { writer->finish(); });
        cluster::on_root(group, [&] { publish(unfinished, out, plan, options); });
    } catch (const Error&) {  // the same on every rank
        // On network file systems a file that a rank still has open stays, and its folder with it.
        writer.reset();
        group.barrier();
        std::error_code ignored;
        if (group.rank() == 0) fs::remove_all(unfinished, ignored);
        throw;
    }
    return {std::string(plan.written.architecture->name), plan.contents.tokenizer_kind};
}

}  // namespace lockstep::exchange
