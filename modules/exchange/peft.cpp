#include "exchange/peft.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "exchange/config_reader.hpp"
#include "model/adapters.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::exchange {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_config = 1 << 20;  // bytes; theirs have some thousand
const std::string prefix = "base_model.model.", weight = ".weight", lora_a = ".lora_A", lora_b = ".lora_B";

// "model.layers.0.self_attn.q_proj", of which ours is "blocks/0/mixer/query".
struct Module {
    std::string ours, theirs;
    bool joined = false, transposed = false;
};

std::vector<Module> linear_layers(const Architecture& architecture, config::ModelDescription model) {
    model.adapters = {1, 0, {"*"}, 0};
    std::set<std::string> adapted;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        if (parameter.name.ends_with(model::adapter_a)) adapted.insert(model::adapted_layer(parameter.name));
    model.adapters = {};
    std::vector<Module> modules;
    for (const Correspondence& each : correspondences(architecture, model)) {
        const std::string layer = each.ours.substr(0, each.ours.rfind('/'));
        if (!each.ours.ends_with("/weight") || adapted.count(layer) == 0) continue;
        modules.push_back({layer, each.theirs.substr(0, each.theirs.size() - weight.size()),
                           each.their_rows != each.shape[0], each.transposed});
    }
    return modules;
}

std::string base_of(const Json& config, const std::string& path, const std::string& given) {
    if (!given.empty()) return given;
    const auto named = config.find("base_model_name_or_path");
    const std::string base = named != config.end() && named->is_string() ? named->get<std::string>() : "";
    if (!is_folder(base))
        throw usage_error(
            "{} holds adapters of {}, which is not a local Hugging Face folder; name their model's folder with --base "
            "(a checkpoint can be converted with lockstep convert)",
            path, base.empty() ? "a model that it does not name" : shown_name(base));
    return base;
}

}  // namespace

bool is_adapter_folder(const std::string& path) {
    std::error_code ignored;
    const auto has = [&](const char* file) { return fs::is_regular_file(path + "/" + file, ignored); };
    return has(adapter_config_name) && !has(single_file_name) && !has(index_file_name);
}

std::vector<Correspondence> adapter_correspondences(const Architecture& architecture,
                                                    const config::ModelDescription& model) {
    std::vector<Correspondence> list;
    const std::vector<Module> modules = linear_layers(architecture, model);
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        if (!model::is_adapter(parameter.name)) continue;
        const std::string layer = model::adapted_layer(parameter.name);
        const auto module =
            std::find_if(modules.begin(), modules.end(), [&](const Module& each) { return each.ours == layer; });
        LOCKSTEP_ASSERT(module != modules.end());
        if (module->joined)
            throw usage_error(
                "{} has {} and others in one layer, {}, for which PEFT has a single adapter; without --adapters they "
                "are merged into the weights",
                architecture.name, layer, module->theirs);
        Correspondence names;
        names.ours = parameter.name;
        names.shape = parameter.shape;
        names.theirs =
            prefix + module->theirs + (parameter.name.ends_with(model::adapter_a) ? lora_a : lora_b) + weight;
        names.their_rows = parameter.shape[0];
        list.push_back(std::move(names));
    }
    return list;
}

Json adapter_config(const Architecture& architecture, const config::ModelDescription& model, const std::string& base) {
    Json modules = Json::array();
    bool transposed = false;
    for (const Module& each : linear_layers(architecture, model)) {
        if (!model::is_adapted(model, each.ours)) continue;
        modules.push_back(each.theirs);
        transposed = transposed || each.transposed;
    }
    const double alpha = model::adapter_scale(model) * static_cast<double>(model.adapters.rank);
    return {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"base_model_name_or_path", base},
            {"r", model.adapters.rank},
            {"lora_alpha", alpha},
            {"lora_dropout", model.adapters.dropout},
            {"bias", "none"},
            {"fan_in_fan_out", transposed},
            {"target_modules", modules},
            {"modules_to_save", nullptr},
            {"use_rslora", false},
            {"use_dora", false},
            {"inference_mode", true}};
}

AdapterFolder::AdapterFolder(const std::string& path, const std::string& base)
    : path_(without_slash(path)),
      config_(read_json_object(path_ + "/" + adapter_config_name, largest_config)),
      base_(base_of(config_, path_, base)),
      file_(path_ + "/" + adapter_file_name),
      model_(base_.model()) {
    ConfigReader reader(config_, path_ + "/" + adapter_config_name);
    reader.require("peft_type", "LORA", "only LoRA adapters are supported");
    const std::string why = "only adapters with one rank, one alpha, and neither biases nor magnitudes are supported";
    for (const char* key : {"use_dora", "use_rslora", "use_qalora", "use_bdlora", "lora_bias"})
        reader.require(key, false, why);
    reader.require("bias", "none", why);
    for (const char* key : {"rank_pattern", "alpha_pattern"}) reader.require(key, Json::object(), why);
    for (const char* key : {"layer_replication", "trainable_token_indices", "alora_invocation_tokens", "arrow_config",
                            "target_parameters"})
        reader.require(key, Json(), why);
    // Others begin beside a base with their first values subtracted.
    if (const Json* start = reader.value("init_lora_weights");
        start && !start->is_boolean() && *start != "gaussian" && *start != "eva" && *start != "orthogonal")
        reader.refuse("init_lora_weights",
                      "such adapters belong to a changed base model; convert them with PEFT first");
    reader.require("modules_to_save", Json::array(), "modules trained in full besides the adapters are not supported");
    model_.adapters.rank = reader.size("r");
    model_.adapters.alpha = reader.number("lora_alpha", 8);
    model_.adapters.dropout = reader.number("lora_dropout", 0);
    if (model_.adapters.dropout < 0 || model_.adapters.dropout >= 1)
        reader.refuse("lora_dropout", "it must be a probability below 1");
    read_layers();
    match_names();
}

// The layers that have an adapter are those whose A is there.
void AdapterFolder::read_layers() {
    const std::vector<Module> modules = linear_layers(base_.architecture(), model_);
    model_.adapters.match.clear();
    std::set<std::string> adapted;
    for (const StoredTensor& tensor : file_.tensors()) {
        const std::string end = lora_a + weight;
        if (!tensor.name.ends_with(end)) continue;
        const auto is_this = [&](const Module& each) { return tensor.name == prefix + each.theirs + end; };
        const auto module = std::find_if(modules.begin(), modules.end(), is_this);
        if (module == modules.end())
            throw usage_error("{} has an adapter {}, and the {} in {} has no such linear layer in its blocks",
                              file_.path(), shown_name(tensor.name), base_.architecture().name, base_.path());
        adapted.insert(module->ours);
    }
    if (adapted.empty()) throw damaged_error("{} holds no adapters", file_.path());
    if (adapted.size() == modules.size()) {
        model_.adapters.match = {"*"};
        return;
    }
    // "*/mixer/query" where every block has that one.
    const auto in_block = [](const std::string& layer) { return layer.substr(layer.find('/', 7) + 1); };
    std::map<std::string, std::size_t> blocks_with;
    for (const std::string& layer : adapted) ++blocks_with[in_block(layer)];
    std::vector<std::string>& match = model_.adapters.match;
    for (const Module& each : modules) {  // in the model's order
        if (adapted.count(each.ours) == 0) continue;
        const std::string layer = in_block(each.ours);
        const bool all = static_cast<std::int64_t>(blocks_with.at(layer)) == model_.layers;
        const std::string pattern = all ? "*/" + layer : each.ours;
        if (std::find(match.begin(), match.end(), pattern) == match.end()) match.push_back(pattern);
    }
}

void AdapterFolder::match_names() {
    std::map<std::string, const StoredTensor*> there;
    for (const StoredTensor& tensor : file_.tensors()) there.emplace(tensor.name, &tensor);
    for (const Correspondence& each : adapter_correspondences(base_.architecture(), model_)) {
        const auto found = there.find(each.theirs);
        if (found == there.end())
            throw damaged_error("{} lacks {}, the other half of one of its adapters", file_.path(), each.theirs);
        if (found->second->shape != each.shape)
            throw damaged_error("{}: {} has shape {}; {} and its model require {}", file_.path(), each.theirs,
                                shape_text(found->second->shape), adapter_config_name, shape_text(each.shape));
        static_cast<void>(compute_type(*found->second, file_.path()));
        stored_.emplace(each.ours, found->second);
        there.erase(found);
    }
    if (!there.empty())
        throw usage_error("{} holds {}, which is not part of a supported adapter", file_.path(),
                          shown_name(there.begin()->first));
}

checkpoint::Source AdapterFolder::source() const {
    return
        [this, of_base = base_.source()](const std::string& path, std::int64_t first, std::int64_t count, float* to) {
            if (!model::is_adapter(path)) return of_base(path, first, count, to);
            const StoredTensor* tensor = stored_.at(path.substr(checkpoint::parameters_prefix.size()));
            read_elements({&file_, tensor}, first, count, to);
            checkpoint::check_finite(file_.path(), tensor->name, to, count);
        };
}

}  // namespace lockstep::exchange
