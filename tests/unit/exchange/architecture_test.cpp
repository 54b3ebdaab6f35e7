// Configurations of transformers: what they mean here, what is refused, and the way back.
#define BOOST_TEST_MODULE architecture
#include "exchange/architecture.hpp"

#include <set>

#include "base/json_text.hpp"
#include "files.hpp"
#include "model/parameter_description.hpp"

using namespace lockstep;
using namespace lockstep::exchange;
using namespace lockstep::tests;
using config::ModelDescription;

namespace {

const Json gpt2 = {{"architectures", {"GPT2LMHeadModel"}},
                   {"model_type", "gpt2"},
                   {"n_embd", 16},
                   {"n_layer", 2},
                   {"n_head", 2},
                   {"n_positions", 32},
                   {"vocab_size", 64}};
const Json sizes = {
    {"hidden_size", 16}, {"num_hidden_layers", 2},  {"num_attention_heads", 4},      {"num_key_value_heads", 2},
    {"vocab_size", 64},  {"intermediate_size", 24}, {"max_position_embeddings", 128}};

Json with(Json base, const Json& more) {
    base.update(more);
    return base;
}
Json of(const std::string& name, const Json& more = Json::object()) {
    return with(with(sizes, {{"architectures", {name}}}), more);
}
Json ttt(const Json& more = Json::object()) {
    Json config = with(of("TTTForCausalLM"), more);
    config.erase("num_key_value_heads");
    return config;
}

ModelDescription read(const Json& config) {
    std::vector<std::string> unknown;
    return read_model(architecture_of(config, "config.json"), config, "config.json", unknown);
}
std::vector<std::string> unknown_of(const Json& config) {
    std::vector<std::string> unknown;
    static_cast<void>(read_model(architecture_of(config, "config.json"), config, "config.json", unknown));
    return unknown;
}
void refused(const Json& config, const std::string& key, ExitCode code = ExitCode::usage) {
    BOOST_TEST_CONTEXT(config.dump()) check_error([&] { read(config); }, code, key);
}

}  // namespace

BOOST_AUTO_TEST_CASE(configurations_mean_models) {
    const ModelDescription small = read(gpt2);
    BOOST_TEST(small.mlp_width == 64);
    BOOST_TEST(small.context == 32);
    BOOST_TEST(small.tied_head);
    BOOST_TEST((small.norm == config::NormKind::layer && small.mlp == config::MlpKind::gelu &&
                small.position == config::Position::learned && small.bias == config::Bias::all));
    const ModelDescription llama = read(of("LlamaForCausalLM", {{"rope_theta", 5e5}, {"rms_norm_eps", 1e-5}}));
    BOOST_TEST(llama.layer(0).head_width == 4);
    BOOST_TEST(llama.layer(0).kv_heads == 2);
    BOOST_TEST(!llama.tied_head);
    BOOST_TEST(llama.rope_theta == 5e5);
    BOOST_TEST(llama.norm_epsilon == 1e-5);
    BOOST_TEST((llama.bias == config::Bias::none && llama.rope_scaling == config::RopeScaling::none));
    BOOST_TEST(
        (read(of("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}})).bias == config::Bias::all));
    BOOST_TEST((read(of("Qwen2ForCausalLM")).bias == config::Bias::qkv));
    const ModelDescription qwen3 = read(of("Qwen3ForCausalLM"));
    BOOST_TEST(qwen3.qk_norm);
    BOOST_TEST(qwen3.layer(0).head_width == 128);  // its own default
    BOOST_TEST(read(of("Qwen3ForCausalLM", {{"head_dim", 8}})).layer(0).head_width == 8);
    const ModelDescription mlp = read(ttt({{"ttt_layer_type", "mlp"}, {"ttt_base_lr", 0.1}, {"use_gate", true}}));
    BOOST_TEST(mlp.mixer(0) == "ttt-mlp");
    BOOST_TEST(mlp.options.at("ttt").number("base_lr") == 0.1);
    BOOST_TEST(mlp.options.at("ttt").flag("gate"));
    BOOST_TEST(mlp.tied_head);
    // Without architectures the type says it.
    Json nameless = with(sizes, {{"model_type", "mistral"}, {"sliding_window", nullptr}});
    BOOST_TEST(architecture_of(nameless, "").name == "MistralForCausalLM");
}

BOOST_AUTO_TEST_CASE(rotations_of_every_spelling) {
    const Json scaling = {{"factor", 32.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}};
    for (const Json& more :
         {Json{{"rope_scaling", with(scaling, {{"rope_type", "llama3"}})}, {"rope_theta", 7e4}},
          Json{{"rope_scaling", with(scaling, {{"type", "llama3"}})}, {"rope_theta", 7e4}},
          Json{{"rope_parameters", with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 7e4}})}}}) {
        const ModelDescription model = read(of("LlamaForCausalLM", more));
        BOOST_TEST((model.rope_scaling == config::RopeScaling::llama3), more.dump());
        BOOST_TEST(model.rope_factor == 32);
        BOOST_TEST(model.rope_original_context == 64);
        BOOST_TEST(model.rope_theta == 7e4);
        BOOST_TEST(unknown_of(of("LlamaForCausalLM", more)).empty());
    }
    for (const auto& [key, value] : scaling.items()) {
        Json lacking = with(scaling, {{"rope_type", "llama3"}});
        lacking.erase(key);
        refused(of("LlamaForCausalLM", {{"rope_scaling", lacking}}), "lacks rope_scaling." + key);
    }
    // The older key wins, as in transformers, but not where it is null.
    for (const bool is_null : {false, true}) {
        const Json older = is_null ? Json() : with(scaling, {{"rope_type", "llama3"}});
        const ModelDescription model =
            read(of("LlamaForCausalLM", {{"rope_scaling", older},
                                         {"rope_theta", 5e4},
                                         {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7e4}}}}));
        BOOST_TEST((model.rope_scaling == (is_null ? config::RopeScaling::none : config::RopeScaling::llama3)));
        BOOST_TEST(model.rope_theta == (is_null ? 7e4 : 5e4));
    }
    refused(of("LlamaForCausalLM", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}), "linear");
    refused(of("LlamaForCausalLM", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}),
            "rope_scaling.rope_type");
    refused(of("Qwen2ForCausalLM", {{"rope_parameters", {{"rope_type", "dynamic"}}}}), "dynamic");
    refused(of("LlamaForCausalLM", {{"rope_scaling", "llama3"}}), "not an object", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor = 0.5");
    refused(of("LlamaForCausalLM", {{"rope_interleaved", true}}), "rope_interleaved");
    BOOST_TEST(
        unknown_of(of("LlamaForCausalLM", {{"rope_interleaved", false}, {"partial_rotary_factor", 1.0}})).empty());
}

BOOST_AUTO_TEST_CASE(what_is_not_computed_here_is_refused_by_key_and_value) {
    refused(with(gpt2, {{"activation_function", "gelu"}}), "activation_function = \"gelu\"");
    refused(with(gpt2, {{"activation_function", "relu"}}), "relu");
    refused(with(gpt2, {{"scale_attn_weights", false}}), "scale_attn_weights = false");
    refused(with(gpt2, {{"scale_attn_by_inverse_layer_idx", true}}), "scale_attn_by_inverse_layer_idx = true");
    refused(with(gpt2, {{"add_cross_attention", true}}), "add_cross_attention");
    refused(with(gpt2, {{"pruned_heads", {{"0", {1}}}}}), "pruned_heads");
    refused(with(gpt2, {{"n_head", 3}}), "heads");
    refused(with(gpt2, {{"quantization_config", {{"bits", 4}}}}), "quantization_config");
    refused(of("LlamaForCausalLM", {{"hidden_act", "gelu"}}), "hidden_act = \"gelu\"");
    refused(of("LlamaForCausalLM", {{"attention_bias", true}}), "attention_bias = true");
    refused(of("LlamaForCausalLM", {{"mlp_bias", true}}), "mlp_bias = true");
    refused(of("LlamaForCausalLM", {{"num_key_value_heads", 3}}), "kv_heads");
    refused(of("Qwen2ForCausalLM", {{"layer_types", {"full_attention", "sliding_attention"}}}), "layer_types");
    refused(of("Qwen3ForCausalLM", {{"attention_bias", true}, {"head_dim", 8}}), "attention_bias");
    refused(ttt({{"conv_kernel", 3}}), "conv_kernel = 3");
    refused(ttt({{"ttt_layer_type", "conv"}}), "ttt_layer_type = \"conv\"");
    refused(ttt({{"ttt_base_lr", 0}}), "ttt_base_lr = 0");
    refused(of("GemmaForCausalLM"), "GemmaForCausalLM");
    refused(with(sizes, {{"model_type", "gemma"}}), "gemma");
    // Nothing of a file reaches a terminal as it is.
    refused(of("Gemma\x1b[2J" + std::string(1000, 'a')), R"(architectures = "Gemma\u001b[2Jaaa)");
    refused(sizes, "neither architectures nor a model_type");
    Json missing = of("MistralForCausalLM");
    missing.erase("num_key_value_heads");
    refused(missing, "lacks num_key_value_heads");
    refused(of("Qwen2ForCausalLM", {{"use_mrope", true}}), "use_mrope = true");
    BOOST_TEST(unknown_of(of("Qwen2ForCausalLM", {{"use_mrope", false}})).empty());
    const Json some = {"full_attention", "chunked_attention"};
    refused(of("Qwen2ForCausalLM", {{"use_sliding_window", true}, {"sliding_window", 64}, {"layer_types", some}}),
            "layer_types");
}

BOOST_AUTO_TEST_CASE(windows_of_layers) {
    using Windows = std::vector<std::int64_t>;
    const auto windows = [](const std::string& name, const Json& more) { return read(of(name, more)).windows; };
    const std::string mistral = "MistralForCausalLM", qwen = "Qwen2ForCausalLM";
    BOOST_TEST(windows(mistral, {{"sliding_window", 64}}) == Windows{64});
    BOOST_TEST(windows(mistral, {{"max_position_embeddings", 8192}}) == Windows{4096});  // the key's default
    // One as long as the context hides nothing.
    BOOST_TEST(windows(mistral, {{"max_position_embeddings", 4096}}) == Windows{0});
    BOOST_TEST(windows(mistral, {{"sliding_window", 128}}) == Windows{0});
    BOOST_TEST(windows(mistral, {{"max_position_embeddings", 8192}, {"sliding_window", nullptr}}) == Windows{0});
    // Qwen's is off unless used, and begins at a layer.
    BOOST_TEST(windows(qwen, {{"use_sliding_window", false}, {"sliding_window", 64}}) == Windows{0});
    const auto used = [&](const Json& more) {
        return windows(qwen, with({{"use_sliding_window", true}, {"sliding_window", 64}}, more));
    };
    BOOST_TEST(used(Json::object()) == Windows{0});  // from layer 28 on
    BOOST_TEST(used({{"max_window_layers", 0}}) == Windows{64});
    BOOST_TEST(used({{"max_window_layers", 1}}) == (Windows{0, 64}));
    BOOST_TEST(used({{"layer_types", {"sliding_attention", "full_attention"}}}) == (Windows{64, 0}));
    const auto name_of = [](const Json& config) {
        const Written written = write_model(read(config));
        BOOST_TEST((read(written.config) == read(config)), written.config.dump(2));
        BOOST_TEST(unknown_of(written.config).empty());
        return written.architecture->name;
    };
    BOOST_TEST(name_of(of(mistral, {{"sliding_window", 64}})) == mistral);
    ModelDescription beyond = read(of(qwen));
    beyond.windows = {500, 64};
    BOOST_TEST(read(write_model(beyond).config).windows == (Windows{0, 64}));
    beyond = read(of("LlamaForCausalLM"));
    beyond.windows = {128};
    BOOST_TEST(write_model(beyond).architecture->name == "LlamaForCausalLM");
    for (const Json& types : {Json{"sliding_attention", "full_attention"}, {"full_attention", "sliding_attention"}})
        for (const std::string name : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"})
            BOOST_TEST(
                name_of(of(name, {{"use_sliding_window", true}, {"sliding_window", 64}, {"layer_types", types}})) ==
                name);
}

BOOST_AUTO_TEST_CASE(wrong_types_and_impossible_sizes_are_damage_or_refused) {
    refused(of("LlamaForCausalLM", {{"hidden_size", "16"}}), "hidden_size", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"hidden_size", -16}}), "hidden_size", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"hidden_size", 16.5}}), "hidden_size", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"hidden_size", 18446744073709551615u}}), "hidden_size", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"hidden_size", std::int64_t{1} << 40}}), "width");
    for (const char* name : {"LlamaForCausalLM", "Qwen2ForCausalLM"})
        refused(of(name, {{"num_hidden_layers", 1'000'000'000}}), "layers");
    for (const char* key : {"hidden_size", "intermediate_size", "num_key_value_heads", "head_dim"})
        refused(of("LlamaForCausalLM", {{key, 0}}), std::string(key) + " = 0");
    refused(with(gpt2, {{"n_inner", 0}}), "n_inner = 0");
    BOOST_TEST(read(with(gpt2, {{"n_inner", nullptr}})).mlp_width == 64);
    refused(ttt({{"mini_batch_size", 0}}), "mini_batch_size = 0");
    refused(of("Qwen2ForCausalLM", {{"layer_types", "full_attention"}}), "layer_types = \"full_attention\"");
    refused(of("LlamaForCausalLM", {{"tie_word_embeddings", 1}}), "tie_word_embeddings", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"hidden_act", 1}}), "hidden_act", ExitCode::damaged);
    refused(of("LlamaForCausalLM", {{"rms_norm_eps", "x"}}), "rms_norm_eps", ExitCode::damaged);
}

BOOST_AUTO_TEST_CASE(keys_that_nobody_knows_are_named) {
    BOOST_TEST(unknown_of(of("LlamaForCausalLM", {{"pretraining_tp", 1}, {"dtype", "bfloat16"}, {"use_cache", true}}))
                   .empty());
    const auto unknown = unknown_of(of("LlamaForCausalLM", {{"logit_scale", 2.0}, {"rope_scaling", {{"new", 1}}}}));
    BOOST_TEST_REQUIRE(unknown.size() == 2u);
    BOOST_TEST(std::set<std::string>(unknown.begin(), unknown.end()).contains("logit_scale"));
    BOOST_TEST(std::set<std::string>(unknown.begin(), unknown.end()).contains("rope_scaling.new"));
}

BOOST_AUTO_TEST_CASE(models_are_written_as_the_architecture_that_fits) {
    const auto name_of = [](const Json& config) { return write_model(read(config)).architecture->name; };
    for (const Json& config :
         {gpt2, with(gpt2, {{"tie_word_embeddings", false}, {"n_inner", 24}}), of("LlamaForCausalLM"),
          of("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}, {"head_dim", 8}}),
          of("LlamaForCausalLM", {{"rope_scaling",
                                   {{"rope_type", "llama3"},
                                    {"factor", 4.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 2.0},
                                    {"original_max_position_embeddings", 32}}}}),
          of("Qwen2ForCausalLM"), of("Qwen3ForCausalLM", {{"head_dim", 8}}), ttt(),
          ttt({{"ttt_layer_type", "mlp"}, {"ttt_base_lr", 0.05}, {"share_qk", true}, {"pre_conv", true}})}) {
        BOOST_TEST(name_of(config) == config["architectures"][0].get<std::string>());
        // And means the same when it is read again.
        const Written written = write_model(read(config));
        BOOST_TEST((read(written.config) == read(config)), written.config.dump(2));
        BOOST_TEST(unknown_of(written.config).empty());
    }
    BOOST_TEST(name_of(of("MistralForCausalLM", {{"sliding_window", nullptr}})) == "LlamaForCausalLM");
}

BOOST_AUTO_TEST_CASE(what_none_computes_is_refused_with_what_differs) {
    ModelDescription model = read(of("LlamaForCausalLM"));
    model.norm = config::NormKind::layer;
    check_error([&] { write_model(model); }, ExitCode::usage, "model.norm = \"layer\" (it has \"rms\")");
    model = read(of("LlamaForCausalLM"));
    model.mlp = config::MlpKind::gelu;
    check_error([&] { write_model(model); }, ExitCode::usage, "model.mlp = \"gelu\"");
    model = read(of("Qwen3ForCausalLM", {{"head_dim", 8}}));
    model.bias = config::Bias::qkv;
    check_error([&] { write_model(model); }, ExitCode::usage, "model.qk_norm = true (it has false)");
    model = read(gpt2);
    model.bias = config::Bias::none;
    check_error([&] { write_model(model); }, ExitCode::usage,
                "the closest is GPT2LMHeadModel, which differs in model.bias");
    // What is trained, and the preset's name, are of no account.
    model = read(gpt2);
    model.frozen = {"embedding/*"};
    model.preset = "gpt2-124m";
    BOOST_TEST(write_model(model).architecture->name == "GPT2LMHeadModel");
    model = read(of("LlamaForCausalLM"));
    model.kv_heads = {2, 4};
    check_error([&] { write_model(model); }, ExitCode::usage, "model.kv_heads = [2, 4] (it has 2)");
}

BOOST_AUTO_TEST_CASE(every_preset_has_an_architecture) {
    for (const std::string& name : config::preset_names()) {
        ModelDescription model = config::preset(name);
        model.preset.clear();
        const std::string first = model.mixer(0);
        if (model.is_hybrid() || first == "gated-deltanet") {
            const std::string mixer = std::string("model.mixer = ") + (model.is_hybrid() ? "[" : "") + '"' + first;
            BOOST_CHECK_EXCEPTION(write_model(model), Error, [&](const Error& error) {
                return std::string(error.what()).find(mixer) != std::string::npos;
            });
            continue;
        }
        const Written written = write_model(model);
        BOOST_TEST((read(written.config) == model), name);
    }
}

BOOST_AUTO_TEST_CASE(every_parameter_has_a_name_of_its_own_place) {
    for (const Json& config :
         {gpt2, with(gpt2, {{"tie_word_embeddings", false}}), of("LlamaForCausalLM"),
          of("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}}), of("Qwen2ForCausalLM"),
          of("Qwen3ForCausalLM"), ttt({{"use_gate", true}, {"share_qk", true}, {"pre_conv", true}}),
          ttt({{"ttt_layer_type", "mlp"}, {"tie_word_embeddings", false}})}) {
        const ModelDescription model = read(config);
        const Architecture& architecture = architecture_of(config, "");
        const auto names = correspondences(architecture, model);
        std::map<std::string, std::int64_t> rows;  // of theirs, taken by ours
        std::map<std::string, std::int64_t> all;
        std::int64_t count = 0;
        for (const Correspondence& each : names) {
            BOOST_TEST((each.theirs.find('#') == std::string::npos), each.theirs);
            BOOST_TEST(each.first_row == rows[each.theirs]);  // joined ones follow each other
            rows[each.theirs] += each.shape[0];
            all[each.theirs] = each.their_rows;
            count += element_count(each.shape);
        }
        BOOST_TEST((rows == all), config.dump());
        BOOST_TEST(count == model::parameter_count(model));
    }
    // By the table of the authors of each.
    const auto names = correspondences(architecture_of(gpt2, ""), read(gpt2));
    const auto key = std::find_if(names.begin(), names.end(),
                                  [](const auto& each) { return each.ours == "blocks/1/mixer/key/weight"; });
    BOOST_TEST_REQUIRE((key != names.end()));
    BOOST_TEST(key->theirs == "transformer.h.1.attn.c_attn.weight");
    BOOST_TEST((key->their_shape() == Shape{16, 48}));
    BOOST_TEST(key->first_row == 16);
}

BOOST_AUTO_TEST_CASE(a_file_that_nests_deeper_than_any_configuration_is_damaged) {
    const auto nested = [](std::size_t levels) {
        return "{\"a\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
    };
    BOOST_TEST(parse_json_object(nested(deepest_json - 1), "config.json").contains("a"));
    check_error([&] { parse_json_object(nested(deepest_json), "config.json"); }, ExitCode::damaged,
                "config.json nests JSON deeper than 64 levels");
}
