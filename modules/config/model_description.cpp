#include "config/model_description.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

namespace {

struct Sizes {
    const char* name;
    std::int64_t width, layers, heads, kv_heads, mlp_width;
};

// Radford et al. 2019, with the sizes of the published weights.
constexpr std::array<Sizes, 4> gpt2_sizes = {{{"gpt2-124m", 768, 12, 12, 0, 3072},
                                              {"gpt2-355m", 1024, 24, 16, 0, 4096},
                                              {"gpt2-774m", 1280, 36, 20, 0, 5120},
                                              {"gpt2-1558m", 1600, 48, 25, 0, 6400}}};
// Sun et al. 2024; each for ttt-linear and ttt-mlp.
constexpr std::array<Sizes, 4> ttt_sizes = {{{"125m", 768, 12, 12, 0, 2048},
                                             {"350m", 1024, 24, 16, 0, 2736},
                                             {"760m", 1536, 24, 16, 0, 4096},
                                             {"1b", 2048, 24, 32, 0, 5504}}};
// Llama Team 2024.
constexpr std::array<Sizes, 2> llama_sizes = {
    {{"llama-3.1-8b", 4096, 32, 32, 8, 14336}, {"llama-3.1-70b", 8192, 80, 64, 8, 28672}}};
// Qwen Team 2024.
constexpr Sizes qwen_sizes = {"qwen2.5-7b", 3584, 28, 28, 4, 18944};

ModelDescription sized(const Sizes& sizes, const std::string& name) {
    ModelDescription model;
    model.preset = name;
    model.width = sizes.width;
    model.layers = sizes.layers;
    model.heads = sizes.heads;
    model.kv_heads = sizes.kv_heads;
    model.mlp_width = sizes.mlp_width;
    return model;
}

ModelDescription gpt2(const Sizes& sizes) {
    ModelDescription model = sized(sizes, sizes.name);
    model.vocabulary = 50257;
    model.context = 1024;
    model.norm = NormKind::layer;
    model.norm_epsilon = 1e-5;
    model.mlp = MlpKind::gelu;
    model.position = Position::learned;
    model.bias = Bias::all;
    return model;
}

ModelDescription ttt(const Sizes& sizes, const std::string& mixer) {
    ModelDescription model = sized(sizes, mixer + "-" + sizes.name);
    model.mixer = mixer;
    model.vocabulary = 32000;
    model.context = 2048;
    model.position = Position::none;
    return model;
}

ModelDescription llama(const Sizes& sizes) {
    ModelDescription model = sized(sizes, sizes.name);
    model.vocabulary = 128256;
    model.context = 131072;
    model.norm_epsilon = 1e-5;
    model.rope_theta = 500000;
    model.rope_scaling = RopeScaling::llama3;
    model.tied_head = false;
    return model;
}

ModelDescription qwen() {
    ModelDescription model = sized(qwen_sizes, qwen_sizes.name);
    model.vocabulary = 152064;
    model.context = 131072;
    model.rope_theta = 1e6;
    model.tied_head = false;
    model.bias = Bias::qkv;
    return model;
}

const std::vector<ModelDescription>& presets() {
    static const std::vector<ModelDescription> all = [] {
        std::vector<ModelDescription> models;
        for (const Sizes& sizes : gpt2_sizes) models.push_back(gpt2(sizes));
        for (const char* mixer : {"ttt-linear", "ttt-mlp"})
            for (const Sizes& sizes : ttt_sizes) models.push_back(ttt(sizes, mixer));
        for (const Sizes& sizes : llama_sizes) models.push_back(llama(sizes));
        models.push_back(qwen());
        return models;
    }();
    return all;
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
    throw usage_error("{}there is no preset {}; {}the presets are {}", place, toml_text(name),
                      near.empty() ? "" : "did you mean " + near + "? ", list);
}

ModelDescription preset(const std::string& name) {
    ModelDescription model = preset_values(name, "");
    resolve(model);
    return model;
}

void resolve(ModelDescription& model) {
    if (model.kv_heads == 0) model.kv_heads = model.heads;
    if (model.head_width == 0 && model.heads > 0 && model.width % model.heads == 0)
        model.head_width = model.width / model.heads;
    if (model.mlp_width == 0) model.mlp_width = 4 * model.width;
    if (const Kind* mixer = find_kind(Family::mixer, model.mixer)) mixer->resolve(model);
}

}  // namespace lockstep::config
