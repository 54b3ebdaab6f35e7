// GPT2LMHeadModel. Its Conv1D weights are [inputs, outputs], the transpose of ours; queries, keys and values are
// joined.
#include <array>

#include "exchange/architecture.hpp"

namespace lockstep::exchange {
namespace {

constexpr bool transposed = true;
constexpr std::array<NamePair, 21> names = {
    {{"embedding/weight", "transformer.wte.weight"},
     {"position/weight", "transformer.wpe.weight"},
     {"blocks/#/mixer_norm/weight", "transformer.h.#.ln_1.weight"},
     {"blocks/#/mixer_norm/bias", "transformer.h.#.ln_1.bias"},
     {"blocks/#/mixer/query/weight", "transformer.h.#.attn.c_attn.weight", transposed, 0, 3},
     {"blocks/#/mixer/query/bias", "transformer.h.#.attn.c_attn.bias", false, 0, 3},
     {"blocks/#/mixer/key/weight", "transformer.h.#.attn.c_attn.weight", transposed, 1, 3},
     {"blocks/#/mixer/key/bias", "transformer.h.#.attn.c_attn.bias", false, 1, 3},
     {"blocks/#/mixer/value/weight", "transformer.h.#.attn.c_attn.weight", transposed, 2, 3},
     {"blocks/#/mixer/value/bias", "transformer.h.#.attn.c_attn.bias", false, 2, 3},
     {"blocks/#/mixer/output/weight", "transformer.h.#.attn.c_proj.weight", transposed},
     {"blocks/#/mixer/output/bias", "transformer.h.#.attn.c_proj.bias"},
     {"blocks/#/mlp_norm/weight", "transformer.h.#.ln_2.weight"},
     {"blocks/#/mlp_norm/bias", "transformer.h.#.ln_2.bias"},
     {"blocks/#/mlp/up/weight", "transformer.h.#.mlp.c_fc.weight", transposed},
     {"blocks/#/mlp/up/bias", "transformer.h.#.mlp.c_fc.bias"},
     {"blocks/#/mlp/down/weight", "transformer.h.#.mlp.c_proj.weight", transposed},
     {"blocks/#/mlp/down/bias", "transformer.h.#.mlp.c_proj.bias"},
     {"final_norm/weight", "transformer.ln_f.weight"},
     {"final_norm/bias", "transformer.ln_f.bias"},
     {"head/weight", "lm_head.weight"}}};
// The causal mask, in older files.
constexpr std::array<std::string_view, 2> constants = {"transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias"};

config::ModelDescription read(ConfigReader& reader) {
    config::ModelDescription model;
    model.width = reader.size("n_embd");
    model.layers = reader.size("n_layer");
    model.heads = {reader.size("n_head")};
    model.mlp_width = reader.size("n_inner", 0);
    model.vocabulary = reader.size("vocab_size");
    model.context = reader.size("n_positions");
    model.norm = config::NormKind::layer;
    model.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5);
    model.mlp = config::MlpKind::gelu;
    model.position = config::Position::learned;
    model.bias = config::Bias::all;
    model.tied_head = reader.flag("tie_word_embeddings", true);
    const std::string activation = reader.text("activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
        reader.refuse("activation_function", "only GELU in its tanh form (gelu_new) is supported");
    reader.require("scale_attn_weights", true,
                   "attention scores are always divided by the square root of the head's width");
    reader.require("scale_attn_by_inverse_layer_idx", false,
                   "scaling attention scores by the layer index is not supported");
    // Dropout acts in training only, and there is none here.
    reader.pass_over({"n_ctx", "resid_pdrop", "embd_pdrop", "attn_pdrop", "reorder_and_upcast_attn",
                      "initializer_range", "summary_type", "summary_use_proj", "summary_activation",
                      "summary_proj_to_labels", "summary_first_dropout"});
    return model;
}

Json write(const config::ModelDescription& model) {
    return {{"vocab_size", model.vocabulary},
            {"n_positions", model.context},
            {"n_embd", model.width},
            {"n_layer", model.layers},
            {"n_head", model.heads.front()},
            {"n_inner", model.mlp_width},
            {"activation_function", "gelu_new"},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"attn_pdrop", 0.0},
            {"layer_norm_epsilon", model.norm_epsilon},
            {"tie_word_embeddings", model.tied_head}};
}

}  // namespace

Architecture gpt2_architecture() {
    return {"GPT2LMHeadModel", "gpt2", "transformer.", names, constants, read, write};
}

}  // namespace lockstep::exchange
