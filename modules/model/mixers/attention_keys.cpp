#include "model/mixers/attention_keys.hpp"

#include <vector>

#include "base/error.hpp"
#include "config/keys.hpp"

namespace lockstep::model {

void refuse_attention_keys(const config::ModelDescription& model, const config::LayerShape& layer,
                           const std::string& mixer) {
    if (model.qk_norm)
        throw usage_error(
            "model.qk_norm = true: {} has no norm of queries and keys; remove it, or set model.mixer to \"attention\"",
            mixer);
    if (model.windows != std::vector<std::int64_t>{0})
        throw usage_error("model.window = {}: {} has no window; remove it, or set model.mixer to \"attention\"",
                          config::toml_text(model.windows), mixer);
    if (model.score_cap != 0)
        throw usage_error(
            "model.score_cap = {}: {} has no attention scores; remove it, or set model.mixer to \"attention\"",
            model.score_cap, mixer);
    if (layer.kv_heads != 0 && layer.kv_heads != layer.heads)
        throw usage_error(
            "model.kv_heads = {} with model.heads = {}: {} ignores it; remove kv_heads, or set model.mixer to "
            "\"attention\"",
            layer.kv_heads, layer.heads, mixer);
    if (model.bias == config::Bias::qkv)
        throw usage_error(
            "model.bias = \"qkv\": the projections of {} have no biases; set it to \"none\", or to \"all\" for the MLP's",
            mixer);
    if (model.rope_scaling != config::RopeScaling::none)
        throw usage_error("model.rope_scaling = {}: {} has no long rotation to scale; set it to \"none\"",
                          config::toml_text(config::word_of(model.rope_scaling)), mixer);
}

}  // namespace lockstep::model
