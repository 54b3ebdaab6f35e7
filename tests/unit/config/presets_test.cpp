#include "config_test.hpp"

using namespace lockstep;
using namespace lockstep::config;

namespace {

std::int64_t of_deltanet(const ModelDescription& m) {
    const std::int64_t d = m.width, H = m.layer(0).heads, all = m.layer(0).query_columns();
    return 3 * d * all + 2 * d * H           // queries, keys, values; decays and strengths
           + 3 * 4 * all                     // convolutions
           + 2 * d * all                     // gate and output
           + 2 * H + m.layer(0).head_width;  // rates and biases of decays, the norm
}

std::int64_t of_mixer(const ModelDescription& m, const std::string& name) {
    if (name == "gated-deltanet") return of_deltanet(m);
    const std::int64_t d = m.width, H = m.layer(0).heads, f = m.layer(0).head_width,
                       key_width = m.layer(0).kv_heads * f;
    std::int64_t mixer = 2 * d * H * f + 2 * d * key_width + (m.qk_norm ? 2 * f : 0);
    if (m.bias != Bias::none) mixer += H * f + 2 * key_width;
    if (m.bias == Bias::all) mixer += d;
    if (name != "attention") {
        const std::int64_t g = name == "ttt-mlp" ? 4 * f : f;
        mixer += H * (f * g + g) + (name == "ttt-mlp" ? H * (g * f + f) : 0);  // the inner model
        mixer += 2 * H * f + H * d + H + m.options.at("ttt").integer("mini_batch") +
                 2 * d;  // inner norm, step sizes, outer norm
    }
    return mixer;
}

// The parameters of a model with these sizes, by the shapes of its tensors.
std::int64_t parameters(const ModelDescription& m) {
    const std::int64_t d = m.width;
    const std::int64_t norm = m.norm == NormKind::layer ? 2 * d : d;
    std::int64_t mixers = 0;
    for (std::int64_t layer = 0; layer < m.layers; ++layer) mixers += of_mixer(m, m.mixer(layer));
    std::int64_t mlp = (m.mlp == MlpKind::swiglu ? 3 : 2) * d * m.mlp_width;
    if (m.bias == Bias::all) mlp += m.mlp_width + d;
    const std::int64_t embeddings =
        m.vocabulary * d * (m.tied_head ? 1 : 2) + (m.position == Position::learned ? m.context * d : 0);
    return embeddings + norm + m.layers * (2 * norm + mlp) + mixers;
}
}  // namespace

BOOST_AUTO_TEST_CASE(presets_have_their_exact_sizes) {
    BOOST_TEST(parameters(preset("gpt2-124m")) == 124439808);
    BOOST_TEST(parameters(preset("gpt2-355m")) == 354823168);
    BOOST_TEST(parameters(preset("gpt2-774m")) == 774030080);
    BOOST_TEST(parameters(preset("gpt2-1558m")) == 1557611200);
    BOOST_TEST(parameters(preset("llama-3.1-8b")) == 8030261248);
    BOOST_TEST(parameters(preset("llama-3.1-70b")) == 70553706496);
    BOOST_TEST(parameters(preset("llama-3.2-1b")) == 1235814400);
    BOOST_TEST(parameters(preset("llama-3.2-3b")) == 3212749824);
    BOOST_TEST(parameters(preset("qwen2.5-0.5b")) == 494032768);
    BOOST_TEST(parameters(preset("qwen2.5-1.5b")) == 1543714304);
    BOOST_TEST(parameters(preset("qwen2.5-3b")) == 3085938688);
    BOOST_TEST(parameters(preset("qwen2.5-7b")) == 7615616512);
    BOOST_TEST(parameters(preset("qwen3-0.6b")) == 596049920);
    BOOST_TEST(parameters(preset("qwen3-1.7b")) == 1720574976);
    BOOST_TEST(parameters(preset("qwen3-4b")) == 4022468096);
    BOOST_TEST(parameters(preset("qwen3-8b")) == 8190735360);
    BOOST_TEST(parameters(preset("mistral-7b")) == 7248023552);
    BOOST_TEST(parameters(preset("smollm2-135m")) == 134515008);
    BOOST_TEST(parameters(preset("smollm2-360m")) == 361821120);
    BOOST_TEST(parameters(preset("smollm2-1.7b")) == 1711376384);
    BOOST_TEST(parameters(preset("ttt-mlp-125m")) == 114442320);
    // Of every four blocks one has no inner model, no step sizes and no norm behind it.
    BOOST_TEST(parameters(preset("ttt-linear-125m")) - parameters(preset("hybrid-ttt-linear-125m")) == 3 * 62236);
    ModelDescription ttt = preset("ttt-linear-125m");
    ttt.vocabulary = 50257;
    BOOST_TEST(parameters(ttt) == 124298064);
}

BOOST_AUTO_TEST_CASE(presets_are_found_by_name) {
    BOOST_TEST(preset_names().size() == 40u);
    for (const std::string& name : preset_names()) BOOST_TEST(preset(name).preset == name);
    BOOST_TEST(preset("ttt-mlp-760m").layer(0).head_width == 96);
    BOOST_TEST((preset("ttt-linear-350m").position == Position::none));
    BOOST_TEST((preset("hybrid-ttt-linear-350m").position == Position::rope));
    BOOST_TEST(preset("hybrid-ttt-linear-350m").mixer(7) == "attention");
    BOOST_TEST(mixers_text(preset("hybrid-ttt-linear-350m")) == "3 ttt-linear and 1 attention in turn");
    BOOST_TEST(preset("ttt-mlp-1b").options.at("ttt").number("base_lr") == 0.1);
    BOOST_TEST((preset("llama-3.1-8b").rope_scaling == RopeScaling::llama3));
    BOOST_TEST(preset("llama-3.1-8b").rope_factor == 8);
    BOOST_TEST(preset("llama-3.2-1b").rope_factor == 32);
    BOOST_TEST(preset("llama-3.2-1b").layer(0).head_width == 64);
    BOOST_TEST(preset("qwen3-0.6b").layer(0).head_width == 128);  // 16 heads of 128 columns over a stream of 1024
    BOOST_TEST(preset("qwen3-0.6b").qk_norm);
    BOOST_TEST(!preset("qwen2.5-0.5b").qk_norm);
    const std::string sentence = sentence_of([] { preset("lama-3.1-8b"); });
    check_contains(sentence, "did you mean llama-3.1-8b?");
    check_contains(sentence, "qwen2.5-7b");
}
