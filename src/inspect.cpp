// lockstep inspect: contents of a run description, run folder, checkpoint, Hugging Face folder, trace, token file or
// model
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/command_line.hpp"
#include "base/format.hpp"
#include "base/table.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/part_files.hpp"
#include "command.hpp"
#include "config/run_description.hpp"
#include "hdf5/hdf5.hpp"
#include "inspect_folder.hpp"
#include "inspect_run.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"
#include "model/parameters.hpp"
#include "optim/registry.hpp"
#include "parameter_list.hpp"
#include "run_status.hpp"

namespace lockstep::commands {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::string file, preset, format = "text";
    std::vector<std::string> settings, keys;
    bool details = false;
    std::int64_t ranks_at_most = 0;  // 0: not asked for
};

// Of a key that takes one value or a list, as its TOML has it.
template <class Value>
Json one_or_list(const std::vector<Value>& list) {
    return list.size() == 1 ? Json(list.front()) : Json(list);
}

int inspect_model(const Options& options) {
    std::vector<std::string> settings = options.settings;
    if (!options.preset.empty()) {
        config::preset(options.preset);  // refuses an unknown one without speaking of --set
        settings.insert(settings.begin(), "model.preset=\"" + options.preset + "\"");
    }
    config::RunDescription description = config::read_run_description("", settings);
    const config::ModelDescription& model = description.model;
    config::check(model);
    const auto parameters = model::describe_parameters(model, model::whole_model(model));
    model::check_frozen(model);
    const std::int64_t count = model::parameter_count(model), trained = model::trained_parameter_count(model);
    // Value, gradient and optimizer state, all fp32; of a frozen parameter only the value.
    const optim::OptimizerType& optimizer = optim::optimizer_of(description.optimizer);
    const std::int64_t state = optim::state_count(optimizer, parameters, description.optimizer.averages());
    const double bytes = static_cast<double>(count + trained + state) * sizeof(float);
    const TableFormat format = table_format(options.format);

    if (format == TableFormat::json) {
        Json json = {{"preset", model.preset},
                     {"mixer", one_or_list(model.mixers)},
                     {"width", model.width},
                     {"layers", model.layers},
                     {"heads", one_or_list(model.heads)},
                     {"kv_heads", one_or_list(model.kv_heads)},
                     {"head_width", one_or_list(model.head_widths)},
                     {"mlp_width", model.mlp_width},
                     {"vocabulary", model.vocabulary},
                     {"context", model.context},
                     {"parameters", count},
                     {"trained_parameters", trained},
                     {"training_flop_per_token", model::training_flop_per_token(model, model.context)},
                     {"optimizer", optimizer.name()},
                     {"optimizer_state", state},
                     {"training_bytes_without_activations", bytes}};
        json["tensors"] = parameter_list(model);
        print_result("{}\n", json.dump(2));
        return 0;
    }
    print_result(parameter_table(model).print(format));
    if (format == TableFormat::csv) return 0;
    print_result(
        "\n{} parameters in {} tensors{}; {} to train, activations excluded (fp32 values, gradients, {} state); "
        "{:.3g} training FLOP per token at length {}\n",
        with_commas(count), parameters.size(),
        trained < count ? fmt::format(", {} of them trained", with_commas(trained)) : "", human_bytes(bytes),
        optimizer.name(), model::training_flop_per_token(model, model.context), model.context);
    return 0;
}

std::int64_t count_parameters(const hdf5::File& file) {
    std::int64_t count = 0;
    if (!file.exists("parameters")) return 0;
    for (const auto& path : file.datasets("parameters")) {
        std::int64_t elements = 1;
        for (const auto size : file.info(path).dimensions) elements *= static_cast<std::int64_t>(size);
        count += elements;
    }
    return count;
}

// A checkpoint's optimizer state: elements by name.
std::map<std::string, std::int64_t> optimizer_states(const std::string& path) {
    std::map<std::string, std::int64_t> states;
    const std::string group = "optimizer/";
    for (const auto& tensor : checkpoint::list_tensors(path))
        if (tensor.path.starts_with(group))
            states[tensor.path.substr(group.size(), tensor.path.find('/', group.size()) - group.size())] +=
                element_count(tensor.shape);
    return states;
}

// The datasets of a checkpoint, added up: parameters, each state of the optimizer, checksums, tokenizer.
Table checkpoint_table(const hdf5::File& file) {
    struct Sum {
        std::int64_t datasets = 0, elements = 0, bytes = 0;
    };
    std::map<std::string, Sum> sums;
    for (const std::string& path : file.datasets("/")) {
        const std::size_t slash = path.starts_with("optimizer/") ? path.find('/', path.find('/') + 1) : path.find('/');
        const hdf5::DatasetInfo info = file.info(path);
        Sum& sum = sums[path.substr(0, slash)];
        ++sum.datasets;
        sum.elements += element_count(Shape(info.dimensions.begin(), info.dimensions.end()));
        sum.bytes += static_cast<std::int64_t>(info.bytes);
    }
    Table table({{"name", "group"}, {"datasets", "datasets"}, {"elements", "elements"}, {"bytes", "bytes"}});
    for (const auto& [name, sum] : sums) table.add_row({name, sum.datasets, sum.elements, sum.bytes});
    return table;
}

// Attributes and datasets of any file that lockstep writes.
int inspect_file(const Options& options) {
    const TableFormat format = table_format(options.format);
    check_written_by_lockstep(options.file);
    const hdf5::File file = hdf5::File::open(options.file);
    if (!file.has_attribute("/", "format"))
        throw usage_error("{} is an HDF5 file that lockstep did not write: it has no attribute 'format'", options.file);
    const std::string kind = file.read_string("/", "format");
    const bool in_short = kind == "lockstep-checkpoint" && !options.details && format != TableFormat::csv;
    Json attributes = Json::object();
    std::string text;
    for (const std::string group : {"/", "/run", "/state"}) {
        if (!file.exists(group)) continue;
        for (const auto& name : file.attributes(group)) {
            const std::string value = file.read_as_text(group, name);
            attributes[(group == "/" ? "" : group.substr(1) + "/") + name] = value;
            const bool long_text = value.find('\n') != std::string::npos;
            if (in_short && long_text) {
                text += fmt::format("{} = {} lines; --details prints them\n", name,
                                    std::count(value.begin(), value.end(), '\n'));
                continue;
            }
            text += fmt::format("{}{} = {}\n", group == "/" ? "" : group.substr(1) + "/", name,
                                long_text ? "\n" + value : value);
        }
    }
    Table table({{"name", "dataset"}, {"shape", "shape"}, {"type", "type"}, {"bytes", "bytes"}});
    Json datasets = Json::array();
    for (const auto& path : file.datasets("/")) {
        const hdf5::DatasetInfo info = file.info(path);
        const Shape shape(info.dimensions.begin(), info.dimensions.end());
        table.add_row({path, shape_text(shape), info.type_name, static_cast<std::int64_t>(info.bytes)});
        datasets.push_back({{"name", path}, {"shape", shape}, {"type", info.type_name}, {"bytes", info.bytes}});
    }
    const std::int64_t parameters = count_parameters(file);
    std::string optimizer;
    std::map<std::string, std::int64_t> states;
    if (file.exists("optimizer")) {
        optimizer = checkpoint::read_contents(options.file).state.optimizer;
        states = optimizer_states(options.file);
    }
    if (format == TableFormat::json) {
        Json json = {{"file", options.file}, {"format", kind}};
        if (parameters > 0) json["parameters"] = parameters;
        if (!optimizer.empty()) {
            json["optimizer"] = optimizer;
            json["optimizer_state"] = states;
        }
        json["attributes"] = std::move(attributes);
        json["datasets"] = std::move(datasets);
        print_result("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
        return 0;
    }
    const auto part = checkpoint::part_of(options.file);
    if (part && format != TableFormat::csv)
        print_result("{}: blocks that belong to other parts are holes; lockstep verify checks this part's own\n",
                     checkpoint::part_text(*part));
    if (format != TableFormat::csv) print_result("{}\n", text);
    print_result((in_short ? checkpoint_table(file) : table).print(format));
    if (format == TableFormat::csv || parameters == 0) return 0;
    std::string kept;
    for (const auto& [name, count] : states)
        kept += fmt::format("{}{} ({} elements)", kept.empty() ? "" : ", ", name, with_commas(count));
    print_result("\n{} parameters{}\n", with_commas(parameters),
                 optimizer.empty() ? "" : fmt::format("; {} state: {}", optimizer, kept));
    return 0;
}

}  // namespace

void add_inspect(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand(
        "inspect", "Show a run description, run folder, checkpoint, Hugging Face folder, trace, token file or model");
    const auto options = std::make_shared<Options>();
    command->add_option(
        "FILE", options->file,
        "A run description (TOML), a run's folder, a checkpoint, a Hugging Face folder, a trace or token file");
    command->add_option("--preset", options->preset, "A named model: its tensors, shapes, parameters and memory");
    command
        ->add_option("--set", options->settings,
                     "Override a key of the description or model: --set model.vocabulary=50257 (repeatable)")
        ->allow_extra_args(false);
    command
        ->add_option("--print", options->keys,
                     "Print only this key's value, from the run description (such as run.name) or the run folder's "
                     "status.json (such as state); repeatable, one line each")
        ->allow_extra_args(false);
    command->add_flag("--details", options->details,
                      "For a run description, also list every parameter, as comments; for a checkpoint, every dataset "
                      "and the whole run description");
    command
        ->add_option("--ranks-at-most", options->ranks_at_most,
                     "Print only the largest number of ranks, up to this limit, that the run description can be "
                     "trained on")
        ->check(above_zero())
        ->excludes("--print");
    command->add_option("--format", options->format,
                        "text or json; for checkpoints, traces, token files and models also markdown or csv");
    std::string names;
    for (const auto& name : config::preset_names()) names += (names.empty() ? "" : ", ") + name;
    command->footer("Presets: " + names);
    command->callback([options, &action] {
        action = [options] {
            const FileKind kind = kind_of(options->file, !options->keys.empty() || options->ranks_at_most > 0);
            const TableFormat format = table_format(options->format);
            const bool of_run = kind == FileKind::description || kind == FileKind::run_folder;
            if (of_run && options->keys.empty() && format != TableFormat::text && format != TableFormat::json)
                throw usage_error("--format {}: {} is printed as text or json", options->format, options->file);
            if (kind == FileKind::description) {
                if (!options->preset.empty())
                    throw usage_error("--preset does not apply to a run description; use --set model.preset={}",
                                      options->preset);
                if (options->ranks_at_most > 0)
                    return print_most_ranks(options->file, options->settings, options->ranks_at_most);
                return inspect_description(options->file, options->settings, options->keys, format, options->details);
            }
            if (options->ranks_at_most > 0)
                throw usage_error("--ranks-at-most is for run descriptions, not for {}",
                                  options->file.empty() ? "--preset" : options->file);
            if (options->file.empty() == (options->preset.empty() && options->settings.empty()))
                throw usage_error("inspect takes either a FILE or --preset NAME");
            if (kind == FileKind::run_folder) {
                print_result(run_status(options->file, options->keys, format));
                return 0;
            }
            if (!options->keys.empty())
                throw usage_error("--print is for run descriptions and run folders, not for {}",
                                  options->file.empty() ? "--preset" : options->file);
            if (kind == FileKind::model_folder) {
                if (options->details)
                    throw usage_error("--details is for run descriptions and checkpoints, not for {}", options->file);
                return inspect_folder(options->file, format);
            }
            return options->file.empty() ? inspect_model(*options) : inspect_file(*options);
        };
    });
}

}  // namespace lockstep::commands
