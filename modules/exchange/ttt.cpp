// TTTForCausalLM, the layout of the authors of TTT (https://github.com/test-time-training/ttt-lm-pytorch). Its rotation
// reorders columns, rotates halves and orders them back: pairs (2i, 2i + 1), as here.
#include <algorithm>
#include <array>

#include "exchange/architecture.hpp"

namespace lockstep::exchange {
namespace {

constexpr std::array<NamePair, 31> names = {
    {{"embedding/weight", "model.embed_tokens.weight"},
     {"blocks/#/pre_convolution_norm/weight", "model.layers.#.conv.norm.weight"},
     {"blocks/#/pre_convolution/weight", "model.layers.#.conv.conv.weight"},
     {"blocks/#/pre_convolution/bias", "model.layers.#.conv.conv.bias"},
     {"blocks/#/mixer_norm/weight", "model.layers.#.seq_norm.weight"},
     {"blocks/#/mixer/query/weight", "model.layers.#.seq_modeling_block.q_proj.weight"},
     {"blocks/#/mixer/key/weight", "model.layers.#.seq_modeling_block.k_proj.weight"},
     {"blocks/#/mixer/value/weight", "model.layers.#.seq_modeling_block.v_proj.weight"},
     {"blocks/#/mixer/gate/weight", "model.layers.#.seq_modeling_block.g_proj.weight"},
     {"blocks/#/mixer/output/weight", "model.layers.#.seq_modeling_block.o_proj.weight"},
     {"blocks/#/mixer/query_convolution/weight", "model.layers.#.seq_modeling_block.conv_q.weight"},
     {"blocks/#/mixer/query_convolution/bias", "model.layers.#.seq_modeling_block.conv_q.bias"},
     {"blocks/#/mixer/key_convolution/weight", "model.layers.#.seq_modeling_block.conv_k.weight"},
     {"blocks/#/mixer/key_convolution/bias", "model.layers.#.seq_modeling_block.conv_k.bias"},
     {"blocks/#/mixer/inner/weight1", "model.layers.#.seq_modeling_block.W1"},
     {"blocks/#/mixer/inner/bias1", "model.layers.#.seq_modeling_block.b1"},
     {"blocks/#/mixer/inner/weight2", "model.layers.#.seq_modeling_block.W2"},
     {"blocks/#/mixer/inner/bias2", "model.layers.#.seq_modeling_block.b2"},
     {"blocks/#/mixer/inner_norm/weight", "model.layers.#.seq_modeling_block.ttt_norm_weight"},
     {"blocks/#/mixer/inner_norm/bias", "model.layers.#.seq_modeling_block.ttt_norm_bias"},
     {"blocks/#/mixer/step_size/weight", "model.layers.#.seq_modeling_block.learnable_ttt_lr_weight"},
     {"blocks/#/mixer/step_size/bias", "model.layers.#.seq_modeling_block.learnable_ttt_lr_bias"},
     {"blocks/#/mixer/token_step", "model.layers.#.seq_modeling_block.learnable_token_idx"},
     {"blocks/#/mixer/post_norm/weight", "model.layers.#.seq_modeling_block.post_norm.weight"},
     {"blocks/#/mixer/post_norm/bias", "model.layers.#.seq_modeling_block.post_norm.bias"},
     {"blocks/#/mlp_norm/weight", "model.layers.#.ffn_norm.weight"},
     {"blocks/#/mlp/gate/weight", "model.layers.#.mlp.gate_proj.weight"},
     {"blocks/#/mlp/up/weight", "model.layers.#.mlp.up_proj.weight"},
     {"blocks/#/mlp/down/weight", "model.layers.#.mlp.down_proj.weight"},
     {"final_norm/weight", "model.norm.weight"},
     {"head/weight", "lm_head.weight"}}};
constexpr std::array<std::string_view, 2> constants = {"model.layers.#.seq_modeling_block.token_idx",
                                                       "model.layers.#.seq_modeling_block.rotary_emb.inv_freq"};
constexpr std::int64_t kernel = 4;

struct LayerType {
    std::string_view word, mixer;
};
constexpr std::array<LayerType, 2> layer_types = {{{"linear", "ttt-linear"}, {"mlp", "ttt-mlp"}}};

// "" for another mixer, which is then refused where it is read.
std::string_view word_of(const std::string& mixer) {
    for (const LayerType& each : layer_types)
        if (each.mixer == mixer) return each.word;
    return "";
}

config::ModelDescription read(ConfigReader& reader) {
    config::ModelDescription model;
    model.width = reader.size("hidden_size");
    model.layers = reader.size("num_hidden_layers");
    model.heads = {reader.size("num_attention_heads")};
    model.mlp_width = reader.size("intermediate_size");
    model.vocabulary = reader.size("vocab_size");
    model.context = reader.size("max_position_embeddings");
    model.norm_epsilon = reader.number("rms_norm_eps", 1e-6);
    model.rope_theta = reader.number("rope_theta", 10000);
    model.tied_head = reader.flag("tie_word_embeddings", true);
    model.position = config::Position::none;
    const std::string type = reader.text("ttt_layer_type", "linear");
    const auto known =
        std::find_if(layer_types.begin(), layer_types.end(), [&](const LayerType& each) { return each.word == type; });
    if (known == layer_types.end()) reader.refuse("ttt_layer_type", "the supported layers are linear and mlp");
    model.mixers = {std::string(known->mixer)};
    config::Options& options = model.options.change("ttt");
    const double base_lr = reader.number("ttt_base_lr", 1.0);
    if (!(base_lr > 0)) reader.refuse("ttt_base_lr", "it must be more than 0");
    options.set("base_lr", base_lr);
    options.set("mini_batch", reader.size("mini_batch_size", 16));
    options.set("gate", reader.flag("use_gate", false));
    options.set("share_qk", reader.flag("share_qk", false));
    options.set("pre_conv", reader.flag("pre_conv", false));
    reader.require("hidden_act", "silu", "only silu is supported for the gated MLP");
    reader.require("conv_kernel", kernel, fmt::format("only convolutions with {} taps are supported", kernel));
    // Its own code reads none of rope_scaling and rope_parameters.
    reader.require("rope_scaling", nullptr, "rotation within mini-batches cannot be scaled");
    reader.pass_over({"initializer_range", "pretraining_tp", "scan_checkpoint_group_size", "rope_parameters"});
    return model;
}

Json write(const config::ModelDescription& model) {
    const config::Options options = model.options.at("ttt");
    return {{"vocab_size", model.vocabulary},
            {"max_position_embeddings", model.context},
            {"hidden_size", model.width},
            {"num_hidden_layers", model.layers},
            {"num_attention_heads", model.heads.front()},
            {"intermediate_size", model.mlp_width},
            {"hidden_act", "silu"},
            {"rms_norm_eps", model.norm_epsilon},
            {"rope_theta", model.rope_theta},
            {"tie_word_embeddings", model.tied_head},
            {"ttt_layer_type", word_of(model.mixer(0))},
            {"ttt_base_lr", options.number("base_lr")},
            {"mini_batch_size", options.integer("mini_batch")},
            {"use_gate", options.flag("gate")},
            {"share_qk", options.flag("share_qk")},
            {"pre_conv", options.flag("pre_conv")},
            {"conv_kernel", kernel}};
}

}  // namespace

Architecture ttt_architecture() {
    return {"TTTForCausalLM", "ttt", "model.", names, constants, read, write};
}

}  // namespace lockstep::exchange
