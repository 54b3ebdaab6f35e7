#include "config/model_description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

namespace {

constexpr double usual_theta = 10000;
constexpr bool tied = true, untied = false;

struct Sizes {
    const char* name;
    std::int64_t width, layers, heads, kv_heads, mlp_width, vocabulary, context;
    bool tied_head;
    double rope_theta;
    double rope_factor = 1;  // of Llama 3's scaling
};

// Radford et al. 2019, with the sizes of the published weights.
constexpr std::array<Sizes, 4> gpt2_sizes = {{{"gpt2-124m", 768, 12, 12, 0, 3072, 50257, 1024, tied, usual_theta},
                                              {"gpt2-355m", 1024, 24, 16, 0, 4096, 50257, 1024, tied, usual_theta},
                                              {"gpt2-774m", 1280, 36, 20, 0, 5120, 50257, 1024, tied, usual_theta},
                                              {"gpt2-1558m", 1600, 48, 25, 0, 6400, 50257, 1024, tied, usual_theta}}};
// Sun et al. 2024; each for ttt-linear and ttt-mlp.
constexpr std::array<Sizes, 4> ttt_sizes = {{{"125m", 768, 12, 12, 0, 2048, 32000, 2048, tied, usual_theta},
                                             {"350m", 1024, 24, 16, 0, 2736, 32000, 2048, tied, usual_theta},
                                             {"760m", 1536, 24, 16, 0, 4096, 32000, 2048, tied, usual_theta},
                                             {"1b", 2048, 24, 32, 0, 5504, 32000, 2048, tied, usual_theta}}};
// Llama Team 2024; the published config.json of Llama-3.1-8B and -70B, Llama-3.2-1B and -3B.
constexpr std::array<Sizes, 4> llama_sizes = {
    {{"llama-3.1-8b", 4096, 32, 32, 8, 14336, 128256, 131072, untied, 500000, 8},
     {"llama-3.1-70b", 8192, 80, 64, 8, 28672, 128256, 131072, untied, 500000, 8},
     {"llama-3.2-1b", 2048, 16, 32, 8, 8192, 128256, 131072, tied, 500000, 32},
     {"llama-3.2-3b", 3072, 28, 24, 8, 8192, 128256, 131072, tied, 500000, 32}}};
// Qwen Team 2024 (Qwen2.5) and 2025 (Qwen3); the config.json of Qwen2.5-0.5B to -7B and Qwen3-0.6B to -8B.
constexpr std::array<Sizes, 4> qwen2_sizes = {{{"qwen2.5-0.5b", 896, 24, 14, 2, 4864, 151936, 32768, tied, 1e6},
                                               {"qwen2.5-1.5b", 1536, 28, 12, 2, 8960, 151936, 131072, tied, 1e6},
                                               {"qwen2.5-3b", 2048, 36, 16, 2, 11008, 151936, 32768, tied, 1e6},
                                               {"qwen2.5-7b", 3584, 28, 28, 4, 18944, 152064, 131072, untied, 1e6}}};
constexpr std::array<Sizes, 4> qwen3_sizes = {{{"qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, 40960, tied, 1e6},
                                               {"qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, 40960, tied, 1e6},
                                               {"qwen3-4b", 2560, 36, 32, 8, 9728, 151936, 40960, tied, 1e6},
                                               {"qwen3-8b", 4096, 36, 32, 8, 12288, 151936, 40960, untied, 1e6}}};
// Jiang et al. 2023, without their window; the config.json of Mistral-7B-v0.3.
constexpr Sizes mistral_sizes = {"mistral-7b", 4096, 32, 32, 8, 14336, 32768, 32768, untied, 1e6};
// Ben Allal et al. 2025; the config.json of SmolLM2-135M, -360M and -1.7B.
constexpr std::array<Sizes, 3> smollm2_sizes = {{{"smollm2-135m", 576, 30, 9, 3, 1536, 49152, 8192, tied, 100000},
                                                 {"smollm2-360m", 960, 32, 15, 5, 2560, 49152, 8192, tied, 100000},
                                                 {"smollm2-1.7b", 2048, 24, 32, 32, 8192, 49152, 8192, tied, 130000}}};

ModelDescription sized(const Sizes& sizes) {
    ModelDescription model;
    model.preset = sizes.name;
    model.width = sizes.width;
    model.layers = sizes.layers;
    model.heads = {sizes.heads};
    model.kv_heads = {sizes.kv_heads};
    model.mlp_width = sizes.mlp_width;
    model.vocabulary = sizes.vocabulary;
    model.context = sizes.context;
    model.tied_head = sizes.tied_head;
    model.rope_theta = sizes.rope_theta;
    return model;
}

ModelDescription gpt2(const Sizes& sizes) {
    ModelDescription model = sized(sizes);
    model.norm = NormKind::layer;
    model.norm_epsilon = 1e-5;
    model.mlp = MlpKind::gelu;
    model.position = Position::learned;
    model.bias = Bias::all;
    return model;
}

ModelDescription of_mixer(const Sizes& sizes, const std::string& mixer) {
    ModelDescription model = sized(sizes);
    model.preset = mixer + "-" + sizes.name;
    model.mixers = {mixer};
    return model;
}

// Three blocks in four carry a state of constant size, as in Qwen3-Next (Qwen Team 2025).
ModelDescription hybrid(const Sizes& sizes, const std::string& mixer) {
    ModelDescription model = sized(sizes);
    model.preset = "hybrid-" + mixer + "-" + sizes.name;
    model.mixers = {mixer, mixer, mixer, "attention"};
    return model;
}

ModelDescription llama(const Sizes& sizes) {
    ModelDescription model = sized(sizes);
    model.norm_epsilon = 1e-5;
    model.rope_scaling = RopeScaling::llama3;
    model.rope_factor = sizes.rope_factor;
    return model;
}

ModelDescription qwen2(const Sizes& sizes) {
    ModelDescription model = sized(sizes);
    model.bias = Bias::qkv;
    return model;
}

ModelDescription qwen3(const Sizes& sizes) {
    ModelDescription model = sized(sizes);
    model.head_widths = {128};
    model.qk_norm = true;
    return model;
}

// Mistral's and SmolLM2's.
ModelDescription unscaled_llama(const Sizes& sizes) {
    ModelDescription model = sized(sizes);
    model.norm_epsilon = 1e-5;
    return model;
}

const std::vector<ModelDescription>& presets() {
    static const std::vector<ModelDescription> all = [] {
        std::vector<ModelDescription> models;
        for (const Sizes& sizes : gpt2_sizes) models.push_back(gpt2(sizes));
        for (const char* mixer : {"ttt-linear", "ttt-mlp", "gated-deltanet"})
            for (const Sizes& sizes : ttt_sizes) models.push_back(of_mixer(sizes, mixer));
        for (const char* mixer : {"ttt-linear", "gated-deltanet"})
            for (const Sizes& sizes : ttt_sizes) models.push_back(hybrid(sizes, mixer));
        for (const Sizes& sizes : llama_sizes) models.push_back(llama(sizes));
        for (const Sizes& sizes : qwen2_sizes) models.push_back(qwen2(sizes));
        for (const Sizes& sizes : qwen3_sizes) models.push_back(qwen3(sizes));
        models.push_back(unscaled_llama(mistral_sizes));
        for (const Sizes& sizes : smollm2_sizes) models.push_back(unscaled_llama(sizes));
        return models;
    }();
    return all;
}

// A list that is repeated over the blocks keeps what decides the others. One that is longer than the layers, which
// check() refuses, stays whole.
template <class Value>
void keep_period(std::vector<Value>& list, std::int64_t layers) {
    const auto count = static_cast<std::int64_t>(list.size());
    const auto at = [&](std::int64_t block) { return list[static_cast<std::size_t>(block % count)]; };
    for (std::int64_t length = 1; length < count && count <= layers; ++length) {
        std::int64_t block = length;
        while (block < layers && at(block) == at(block - length)) ++block;
        if (block == layers) return list.resize(static_cast<std::size_t>(length));
    }
}

template <class Value>
const Value& at(const std::vector<Value>& list, std::int64_t block) {
    return list[static_cast<std::size_t>(block) % list.size()];
}

// Of as many blocks as it takes until all of `lists` restart together; at most all layers.
template <class... Lists>
std::int64_t blocks_until_repeat(const ModelDescription& model, const Lists&... lists) {
    std::int64_t blocks = 1;
    for (const std::size_t size : {lists.size()...}) {
        blocks = std::lcm(blocks, static_cast<std::int64_t>(size));
        if (blocks >= model.layers) return std::max<std::int64_t>(1, model.layers);
    }
    return blocks;
}

// In place of zeros, what follows from the heads of each block. Lists longer than the layers, which check() refuses,
// stay as they are.
template <class Function>
void fill(std::vector<std::int64_t>& list, const ModelDescription& model, Function&& following) {
    const std::vector<std::int64_t> given = list;
    const std::int64_t blocks = blocks_until_repeat(model, model.mixers, model.heads, given);
    if (static_cast<std::int64_t>(given.size()) > blocks) return;
    list.clear();
    for (std::int64_t block = 0; block < blocks; ++block) list.push_back(following(block, at(given, block)));
    keep_period(list, model.layers);
}

void expand_tables(ModelDescription& model) {
    const std::vector<LayerTable> tables = std::exchange(model.layer_tables, {});
    const ModelDescription rest = model;  // says what the tables leave out
    model.layers = 0;
    model.mixers.clear();
    for (auto* list : {&model.windows, &model.heads, &model.kv_heads, &model.head_widths}) list->clear();
    for (const LayerTable& table : tables)
        for (std::int64_t i = 0; i < table.count; ++i) {
            const std::int64_t block = model.layers++;
            const LayerShape layer = rest.layer(block);
            model.mixers.push_back(table.mixer.empty() ? rest.mixer(block) : table.mixer);
            const auto add = [](std::vector<std::int64_t>& list, std::int64_t own, std::int64_t otherwise) {
                list.push_back(own == LayerTable::not_given ? otherwise : own);
            };
            add(model.windows, table.window, layer.window);
            add(model.heads, table.heads, layer.heads);
            add(model.kv_heads, table.kv_heads, layer.kv_heads);
            add(model.head_widths, table.head_width, layer.head_width);
        }
}

}  // namespace

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const ModelDescription& model : presets()) names.push_back(model.preset);
    return names;
}

ModelDescription preset_values(const std::string& name, const std::string& place) {
    for (const ModelDescription& model : presets())
        if (model.preset == name) return model;
    const std::vector<std::string> names = preset_names();
    const std::string near = nearest_name(name, names);
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    throw usage_error("{}unknown preset {}; the presets are {}{}", place, toml_text(name), list,
                      near.empty() ? "" : " (did you mean " + near + "?)");
}

ModelDescription preset(const std::string& name) {
    ModelDescription model = preset_values(name, "");
    resolve(model);
    return model;
}

std::vector<const Kind*> mixers_of(const ModelDescription& model) {
    std::vector<const Kind*> list;
    for (const std::string& name : model.mixers) {
        const Kind* kind = find_kind(Family::mixer, name);
        if (kind && std::find(list.begin(), list.end(), kind) == list.end()) list.push_back(kind);
    }
    return list;
}

bool has_attention_keys(const ModelDescription& model) {
    const std::vector<const Kind*> mixers = mixers_of(model);
    return std::any_of(mixers.begin(), mixers.end(), [](const Kind* kind) { return kind->has_attention_keys(); });
}

std::string mixers_text(const ModelDescription& model) {
    if (model.mixers.size() == 1) return model.mixers.front();
    std::vector<std::string> parts;
    for (auto first = model.mixers.begin(); first != model.mixers.end();) {
        const auto end = std::find_if(first, model.mixers.end(), [&](const auto& name) { return name != *first; });
        parts.push_back(fmt::format("{} {}", end - first, *first));
        first = end;
    }
    const bool repeats = static_cast<std::int64_t>(model.mixers.size()) < model.layers;
    return joined(parts, "and") + (repeats ? " in turn" : "");
}

BlockKind kind_of_block(const ModelDescription& model, std::int64_t block) {
    const LayerShape layer = model.layer(block);
    return {model.mixer(block), layer.heads, layer.kv_heads, layer.head_width};
}

bool has_equal_heads(const ModelDescription& model) {
    return model.heads.size() == 1 && model.kv_heads.size() == 1 && model.head_widths.size() == 1;
}

std::int64_t widest_layer(const ModelDescription& model) {
    std::int64_t columns = 0;
    for (std::int64_t block = 0; block < model.period(); ++block)
        columns = std::max(columns, model.layer(block).query_columns());
    return columns;
}

LayerShape ModelDescription::layer(std::int64_t block) const {
    return {block, at(windows, block), at(heads, block), at(kv_heads, block), at(head_widths, block)};
}

std::int64_t ModelDescription::period() const {
    return blocks_until_repeat(*this, mixers, windows, heads, kv_heads, head_widths);
}

void resolve(ModelDescription& model) {
    if (!model.layer_tables.empty()) expand_tables(model);
    keep_period(model.mixers, model.layers);
    keep_period(model.windows, model.layers);
    keep_period(model.heads, model.layers);
    const bool attends = has_attention_keys(model);
    fill(model.kv_heads, model, [&](std::int64_t block, std::int64_t given) {
        // Where others have them, they are attention's alone.
        const Kind* mixer = find_kind(Family::mixer, model.mixer(block));
        const bool heeded = !attends || !mixer || mixer->has_attention_keys();
        return given != 0 && heeded ? given : at(model.heads, block);
    });
    fill(model.head_widths, model, [&](std::int64_t block, std::int64_t given) {
        const std::int64_t heads = at(model.heads, block);
        if (given != 0) return given;
        return heads > 0 && model.width % heads == 0 ? model.width / heads : 0;
    });
    if (model.mlp_width == 0) model.mlp_width = 4 * model.width;
    for (const Kind* mixer : mixers_of(model)) mixer->resolve(model);
    if (model.position == Position::rope && !has_attention_keys(model) && !mixers_of(model).empty())
        model.position = Position::none;
}

}  // namespace lockstep::config
