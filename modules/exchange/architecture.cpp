#include "exchange/architecture.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "config/run_description.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::exchange {
namespace {

constexpr char number_sign = '#';

std::string name_list() {
    std::vector<std::string_view> known;
    for (const Architecture& each : architectures()) known.push_back(each.name);
    return fmt::format("{}", fmt::join(known, ", "));
}

std::string with_number(std::string_view pattern, const std::string& number) {
    std::string name(pattern);
    if (const std::size_t at = name.find(number_sign); at != std::string::npos) name.replace(at, 1, number);
    return name;
}

// "blocks/12/mixer_norm/weight": "blocks/#/mixer_norm/weight" and "12".
std::pair<std::string, std::string> table_name(const std::string& ours) {
    const std::string blocks = "blocks/";
    if (!ours.starts_with(blocks)) return {ours, ""};
    const std::size_t end = ours.find('/', blocks.size());
    return {blocks + number_sign + ours.substr(end), ours.substr(blocks.size(), end - blocks.size())};
}

// The keys of [model] in which two models differ, with both values.
std::vector<std::string> differing_keys(const config::ModelDescription& model, const config::ModelDescription& other) {
    config::RunDescription ours, theirs;
    ours.model = model;
    theirs.model = other;
    const std::vector<config::Key> keys = config::keys_of(ours), others = config::keys_of(theirs);
    std::vector<std::string> list;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::string is = value_of(keys[i]), there = value_of(others[i]);
        if (keys[i].path.starts_with("model.") && is != there)
            list.push_back(fmt::format("{} = {} (it has {})", keys[i].path, is, there));
    }
    return list;
}

}  // namespace

const std::vector<Architecture>& architectures() {
    static const std::vector<Architecture> all = {gpt2_architecture(),  llama_architecture(), mistral_architecture(),
                                                  qwen2_architecture(), qwen3_architecture(), ttt_architecture()};
    return all;
}

void pass_over_common_keys(ConfigReader& reader) {
    reader.require("quantization_config", nullptr,
                   "quantized tensors are not supported; use the model's unquantized files");
    reader.require("is_encoder_decoder", false, "only decoders are supported");
    reader.require("add_cross_attention", false, "cross-attention is not supported");
    if (const Json* pruned = reader.value("pruned_heads"); pruned && !pruned->empty())
        reader.refuse("pruned_heads", "pruned heads are not supported");
    reader.pass_over({"architectures",
                      "model_type",
                      "transformers_version",
                      "torch_dtype",
                      "dtype",
                      "_name_or_path",
                      "auto_map",
                      "use_cache",
                      "return_dict",
                      "output_attentions",
                      "output_hidden_states",
                      "torchscript",
                      "_num_labels",
                      "use_bfloat16",
                      "gradient_checkpointing",
                      "chunk_size_feed_forward",
                      "is_decoder",
                      "tie_encoder_decoder",
                      "cross_attention_hidden_size",
                      "finetuning_task",
                      "id2label",
                      "label2id",
                      "problem_type",
                      "task_specific_params",
                      "tokenizer_class",
                      "prefix",
                      "bos_token_id",
                      "eos_token_id",
                      "pad_token_id",
                      "sep_token_id",
                      "decoder_start_token_id",
                      "max_length",
                      "min_length",
                      "do_sample",
                      "early_stopping",
                      "num_beams",
                      "temperature",
                      "top_k",
                      "top_p",
                      "repetition_penalty",
                      "output_past",
                      "_attn_implementation_autoset",
                      "_attn_implementation",
                      "transformers.js_config",
                      "unsloth_fixed",
                      "unsloth_version"});
}

const Architecture& architecture_of(const Json& config, const std::string& path) {
    const auto names = config.find("architectures");
    const bool named = names != config.end() && names->is_array() && !names->empty() && names->at(0).is_string();
    const auto type = config.find("model_type");
    const std::string model_type = type != config.end() && type->is_string() ? type->get<std::string>() : "";
    const std::string name = named ? names->at(0).get<std::string>() : "";
    for (const Architecture& each : architectures())
        if (named ? each.name == name : each.model_type == model_type) return each;
    if (!named && model_type.empty())
        throw usage_error("{} has neither architectures nor a model_type; the supported architectures are {}", path,
                          name_list());
    throw usage_error("{}: {} = {} is not supported; the supported architectures are {}", path,
                      named ? "architectures" : "model_type", shown(named ? name : model_type), name_list());
}

config::ModelDescription read_model(const Architecture& architecture, const Json& config, const std::string& path,
                                    std::vector<std::string>& unknown) {
    ConfigReader reader(config, path);
    config::ModelDescription model = architecture.read(reader);
    pass_over_common_keys(reader);
    unknown = reader.unknown();
    try {
        config::check_ranges(model);
        config::resolve(model);
        config::check(model);
    } catch (const Error& error) {
        throw error.with_sentence(fmt::format("{} describes a model that lockstep cannot run: {}", path, error.what()));
    }
    return model;
}

Written write_model(const config::ModelDescription& model) {
    if (model.is_hybrid())
        throw usage_error(
            "no Hugging Face architecture that lockstep can write has several mixers, but model.mixer = {}",
            config::toml_text(model.mixers));
    config::ModelDescription wanted = model;
    wanted.preset.clear();
    wanted.frozen.clear();  // says what is trained, not what is computed
    for (std::int64_t& window : wanted.windows)
        if (window >= wanted.context) window = 0;  // it hides nothing
    config::resolve(wanted);
    std::vector<std::string> fewest;
    const Architecture* nearest = nullptr;
    for (const Architecture& each : architectures()) {
        if (!each.write) continue;
        // An architecture fits if it gives back the model that it was given.
        Json config = each.write(wanted);
        config::ModelDescription there;
        try {
            std::vector<std::string> unknown;
            there = read_model(each, config, "config.json", unknown);
        } catch (const Error&) {
            continue;
        }
        if (there == wanted) {
            Json whole = {{"architectures", {each.name}}, {"model_type", each.model_type}};
            whole.update(config);
            return {&each, std::move(whole)};
        }
        std::vector<std::string> differences = differing_keys(wanted, there);
        if (nearest && differences.size() >= fewest.size()) continue;
        fewest = std::move(differences);
        nearest = &each;
    }
    if (!nearest)
        throw usage_error("no Hugging Face architecture that lockstep can write has model.mixer = {}",
                          config::toml_text(model.mixers));
    throw usage_error(
        "no Hugging Face architecture that lockstep can write computes this model; the closest is {}, which differs "
        "in {}",
        nearest->name, fmt::join(fewest, ", "));
}

std::vector<Correspondence> correspondences(const Architecture& architecture, const config::ModelDescription& model) {
    std::vector<Correspondence> list;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        const auto [pattern, number] = table_name(parameter.name);
        const auto pair = std::find_if(architecture.names.begin(), architecture.names.end(),
                                       [&, &ours = pattern](const NamePair& each) { return each.ours == ours; });
        if (pair == architecture.names.end())
            throw fault_error("{} has no name for {}", architecture.name, parameter.name);
        Correspondence names;
        names.ours = parameter.name;
        names.shape = parameter.shape;
        names.theirs = with_number(pair->theirs, number);
        names.transposed = pair->transposed;
        names.first_row = pair->part * parameter.shape[0];
        names.their_rows = pair->parts * parameter.shape[0];
        list.push_back(std::move(names));
    }
    return list;
}

}  // namespace lockstep::exchange
