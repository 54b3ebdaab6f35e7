// LlamaForCausalLM and those that differ from it in little: Mistral (a window), Qwen2 (biases of queries, keys and
// values) and Qwen3 (norms of queries and keys). Rotation pairs column i of a head with column i + half, as attention
// does here.
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "exchange/architecture.hpp"

namespace lockstep::exchange {
namespace {

using config::Bias;
using config::ModelDescription;
using config::RopeScaling;

constexpr std::array<NamePair, 21> names = {
    {{"embedding/weight", "model.embed_tokens.weight"},
     {"blocks/#/mixer_norm/weight", "model.layers.#.input_layernorm.weight"},
     {"blocks/#/mixer/query/weight", "model.layers.#.self_attn.q_proj.weight"},
     {"blocks/#/mixer/query/bias", "model.layers.#.self_attn.q_proj.bias"},
     {"blocks/#/mixer/key/weight", "model.layers.#.self_attn.k_proj.weight"},
     {"blocks/#/mixer/key/bias", "model.layers.#.self_attn.k_proj.bias"},
     {"blocks/#/mixer/value/weight", "model.layers.#.self_attn.v_proj.weight"},
     {"blocks/#/mixer/value/bias", "model.layers.#.self_attn.v_proj.bias"},
     {"blocks/#/mixer/output/weight", "model.layers.#.self_attn.o_proj.weight"},
     {"blocks/#/mixer/output/bias", "model.layers.#.self_attn.o_proj.bias"},
     {"blocks/#/mixer/query_norm/weight", "model.layers.#.self_attn.q_norm.weight"},
     {"blocks/#/mixer/key_norm/weight", "model.layers.#.self_attn.k_norm.weight"},
     {"blocks/#/mlp_norm/weight", "model.layers.#.post_attention_layernorm.weight"},
     {"blocks/#/mlp/gate/weight", "model.layers.#.mlp.gate_proj.weight"},
     {"blocks/#/mlp/gate/bias", "model.layers.#.mlp.gate_proj.bias"},
     {"blocks/#/mlp/up/weight", "model.layers.#.mlp.up_proj.weight"},
     {"blocks/#/mlp/up/bias", "model.layers.#.mlp.up_proj.bias"},
     {"blocks/#/mlp/down/weight", "model.layers.#.mlp.down_proj.weight"},
     {"blocks/#/mlp/down/bias", "model.layers.#.mlp.down_proj.bias"},
     {"final_norm/weight", "model.norm.weight"},
     {"head/weight", "lm_head.weight"}}};
constexpr std::array<std::string_view, 1> constants = {"model.layers.#.self_attn.rotary_emb.inv_freq"};

void read_scaling(ConfigReader rope, ConfigReader& whole, ModelDescription& model) {
    model.rope_theta = rope.number("rope_theta", model.rope_theta);
    // The older key is "type".
    const std::string older = rope.text("type", "default"), type = rope.text("rope_type", older);
    if (type == "llama3") {
        model.rope_scaling = RopeScaling::llama3;
        model.rope_factor = rope.number("factor");
        model.rope_low = rope.number("low_freq_factor");
        model.rope_high = rope.number("high_freq_factor");
        model.rope_original_context = rope.size("original_max_position_embeddings");
    } else if (type != "default") {
        rope.refuse(rope.value("rope_type") ? "rope_type" : "type", "the supported scalings are default and llama3");
    }
    rope.require("partial_rotary_factor", 1.0, "partial rotation of heads is not supported");
    whole.adopt(rope);
}

void read_rope(ConfigReader& reader, ModelDescription& model) {
    model.rope_theta = reader.number("rope_theta", 10000);
    const char *older = "rope_scaling", *newer = "rope_parameters";
    // Where both are there, transformers takes the older one.
    const char* deciding = reader.value(older) ? older : newer;
    if (reader.value(deciding)) read_scaling(reader.object(deciding), reader, model);
    reader.pass_over({newer});
    reader.require("partial_rotary_factor", 1.0, "partial rotation of heads is not supported");
    reader.require("rope_interleaved", false,
                   "interleaved rotation is not supported; rotation pairs the two halves of a head");
}

// Null is none, and so is one as long as the context, which hides nothing.
std::int64_t read_window(ConfigReader& reader, const ModelDescription& model) {
    constexpr const char* key = "sliding_window";
    constexpr std::int64_t where_missing = 4096;  // in MistralConfig and Qwen's
    const std::int64_t window = reader.size(key, reader.is_given(key) ? model.context : where_missing);
    return window < model.context ? window : 0;
}

ModelDescription read_common(ConfigReader& reader) {
    ModelDescription model;
    model.width = reader.size("hidden_size");
    model.layers = reader.size("num_hidden_layers");
    model.heads = {reader.size("num_attention_heads")};
    model.kv_heads = {reader.size("num_key_value_heads", model.heads.front())};
    model.head_widths = {reader.size("head_dim", 0)};
    model.mlp_width = reader.size("intermediate_size");
    model.vocabulary = reader.size("vocab_size");
    model.context = reader.size("max_position_embeddings");
    model.norm_epsilon = reader.number("rms_norm_eps", 1e-6);
    model.tied_head = reader.flag("tie_word_embeddings", false);
    read_rope(reader, model);
    const std::string activation = reader.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish")
        reader.refuse("hidden_act", "only silu is supported for the gated MLP");
    reader.pass_over({"attention_dropout", "initializer_range", "pretraining_tp", "is_llama_config"});
    return model;
}

ModelDescription read_llama(ConfigReader& reader) {
    ModelDescription model = read_common(reader);
    const bool attention = reader.flag("attention_bias", false), mlp = reader.flag("mlp_bias", false);
    if (attention != mlp)
        reader.refuse(attention ? "attention_bias" : "mlp_bias",
                      "biases are supported on all linear layers, on queries, keys and values, or on none");
    model.bias = attention ? Bias::all : Bias::none;
    return model;
}

ModelDescription read_mistral(ConfigReader& reader) {
    ModelDescription model = read_common(reader);
    model.kv_heads = {reader.size("num_key_value_heads")};
    model.windows = {read_window(reader, model)};
    reader.pass_over({"layer_types"});  // all layers have the window
    return model;
}

// Qwen's window is off unless asked for, and that of the layers that layer_types says, or of those from
// max_window_layers on.
void read_qwen_window(ConfigReader& reader, ModelDescription& model) {
    constexpr double where_missing = 28;  // in Qwen's configurations
    const bool used = reader.flag("use_sliding_window", false);
    const std::int64_t window = used ? read_window(reader, model) : 0;
    const double first = reader.number("max_window_layers", where_missing);
    const auto layers = std::min<std::int64_t>(model.layers, 1 << 16);  // not checked yet, and may be anything
    model.windows.clear();
    for (std::int64_t layer = 0; layer < layers; ++layer)
        model.windows.push_back(static_cast<double>(layer) < first ? 0 : window);
    if (const Json* types = reader.value("layer_types")) {
        if (!types->is_array() || static_cast<std::int64_t>(types->size()) != model.layers)
            reader.refuse("layer_types", "it must be a list of strings, one for each layer");
        model.windows.clear();
        for (const Json& type : *types) {
            if (type != "full_attention" && !(used && type == "sliding_attention"))
                reader.refuse("layer_types", used ? "its entries must be full_attention or sliding_attention"
                                                  : "without use_sliding_window attention sees the whole context");
            model.windows.push_back(type == "full_attention" ? 0 : window);
        }
    }
    reader.require("use_mrope", false, "multimodal rotary positions are not supported");
    reader.pass_over({"sliding_window"});
}

ModelDescription read_qwen2(ConfigReader& reader) {
    ModelDescription model = read_common(reader);
    model.kv_heads = {reader.size("num_key_value_heads")};
    model.bias = Bias::qkv;
    read_qwen_window(reader, model);
    return model;
}

ModelDescription read_qwen3(ConfigReader& reader) {
    ModelDescription model = read_common(reader);
    model.kv_heads = {reader.size("num_key_value_heads")};
    model.head_widths = {reader.size("head_dim", 128)};
    model.qk_norm = true;
    reader.require("attention_bias", false, "biases are not supported together with query and key norms");
    read_qwen_window(reader, model);
    return model;
}

Json write_common(const ModelDescription& model) {
    Json rope = {{"rope_theta", model.rope_theta}, {"rope_type", "default"}};
    if (model.rope_scaling == RopeScaling::llama3)
        rope = {
            {"rope_theta", model.rope_theta},      {"rope_type", "llama3"},
            {"factor", model.rope_factor},         {"low_freq_factor", model.rope_low},
            {"high_freq_factor", model.rope_high}, {"original_max_position_embeddings", model.rope_original_context}};
    Json config = {{"vocab_size", model.vocabulary},
                   {"max_position_embeddings", model.context},
                   {"hidden_size", model.width},
                   {"num_hidden_layers", model.layers},
                   {"num_attention_heads", model.heads.front()},
                   {"num_key_value_heads", model.kv_heads.front()},
                   {"head_dim", model.head_widths.front()},
                   {"intermediate_size", model.mlp_width},
                   {"hidden_act", "silu"},
                   {"rms_norm_eps", model.norm_epsilon},
                   {"rope_theta", model.rope_theta},  // both spellings: transformers 4 and 5
                   {"rope_scaling", nullptr},
                   {"tie_word_embeddings", model.tied_head},
                   {"attention_dropout", 0.0}};
    if (model.rope_scaling != RopeScaling::none) {
        Json scaling = rope;
        scaling.erase("rope_theta");
        config["rope_scaling"] = std::move(scaling);
    }
    config["rope_parameters"] = std::move(rope);
    return config;
}

Json write_llama(const ModelDescription& model) {
    Json config = write_common(model);
    config["attention_bias"] = config["mlp_bias"] = model.bias == Bias::all;
    return config;
}

Json write_mistral(const ModelDescription& model) {
    Json config = write_common(model);
    config["sliding_window"] = model.layer(0).window > 0 ? Json(model.layer(0).window) : Json();
    return config;
}

Json write_qwen(const ModelDescription& model) {
    Json config = write_common(model), types = Json::array();
    std::int64_t first = model.layers;  // that has a window
    for (std::int64_t layer = model.layers - 1; layer >= 0; --layer)
        if (model.layer(layer).window > 0) first = layer;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
        types.push_back(model.layer(layer).window > 0 ? "sliding_attention" : "full_attention");
    config["use_sliding_window"] = first < model.layers;
    if (first == model.layers) return config;
    config["sliding_window"] = model.layer(first).window;
    config["max_window_layers"] = first;
    config["layer_types"] = std::move(types);
    return config;
}

Json write_qwen3(const ModelDescription& model) {
    Json config = write_qwen(model);
    config["attention_bias"] = false;
    return config;
}

}  // namespace

Architecture llama_architecture() {
    return {"LlamaForCausalLM", "llama", "model.", names, constants, read_llama, write_llama};
}
// What it computes without its window, Llama computes too, so only models with one are written as this.
Architecture mistral_architecture() {
    return {"MistralForCausalLM", "mistral", "model.", names, constants, read_mistral, write_mistral};
}
Architecture qwen2_architecture() {
    return {"Qwen2ForCausalLM", "qwen2", "model.", names, constants, read_qwen2, write_qwen};
}
Architecture qwen3_architecture() {
    return {"Qwen3ForCausalLM", "qwen3", "model.", names, constants, read_qwen3, write_qwen3};
}

}  // namespace lockstep::exchange
