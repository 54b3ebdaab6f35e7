#include "model/mixers/deltanet.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/delta_gpu_sizes.hpp"
#include "model/mixers/attention_keys.hpp"

namespace lockstep::model {
namespace {

constexpr const char* section_name = "deltanet";

std::vector<config::OptionKey> keys_of_deltanet() {
    return {{"heads", 0, "Value heads, each with its own state. 0: `model.heads`.", 0},
            {"key_heads", 0, "Query/key heads, each shared by the same number of value heads. 0: `heads`.", 0},
            {"key_width", 0, "Width of a query/key head. 0: `model.head_width`.", 0},
            {"value_width", 0, "Width of a value head. 0: `model.head_width`.", 0}};
}

kernels::DeltaShape delta_shape(const DeltanetOptions& options, std::int64_t tensor, const PassShape& shape) {
    return {shape.batch,       shape.length,       options.heads / tensor, options.key_heads / tensor,
            options.key_width, options.value_width};
}

class GatedDeltanetType final : public MixerType {
  public:
    GatedDeltanetType() : MixerType("gated-deltanet", section_name, keys_of_deltanet()) {}

    bool has_attention_keys() const override { return false; }

    bool keeps_documents_apart() const override { return true; }

    void check(const config::ModelDescription& model, const config::LayerShape& layer) const override {
        const DeltanetOptions options(model, layer);
        if (options.heads % options.key_heads != 0)
            throw usage_error(
                "model.deltanet.heads = {} is not a multiple of model.deltanet.key_heads = {}: each key head is "
                "shared by the same number of value heads",
                options.heads, options.key_heads);
        if (!config::has_attention_keys(model)) refuse_attention_keys(model, layer, name());
    }

    std::string why_impossible(const config::ModelDescription& model, const config::LayerShape& layer,
                               const MixerLayout& layout) const override {
        const DeltanetOptions options(model, layer);
        for (const auto& [key, heads] : {std::pair("heads", options.heads), {"key_heads", options.key_heads}})
            if (heads % layout.tensor != 0)
                return fmt::format("parallel.tensor = {} does not divide model.deltanet.{} = {}", layout.tensor, key,
                                   heads);
        return why_stretches_are_impossible(layout);
    }

    void describe(const config::ModelDescription& model, const config::LayerShape& layer,
                  ParameterLister& lister) const override {
        const DeltanetOptions options(model, layer);
        const std::int64_t d = model.width, keys = options.keys(), values = options.values(), heads = options.heads;
        lister.linear_layers({{"query", keys}, {"key", keys}, {"value", values}, {"decay", heads}, {"strength", heads}},
                             d, Split::axis0, false);
        for (const auto& [name, channels] :
             {std::pair("query", keys), std::pair("key", keys), std::pair("value", values)})
            lister.exact(std::string(name) + "_convolution/weight", {channels, 1, ParameterLister::convolution_kernel},
                         Initial::convolution, Split::axis0);
        lister.linear("gate", values, d, Split::axis0, false);
        lister.linear("output", d, values, Split::axis1, false, lister.residual_deviation());
        lister.exact("log_rate", {heads}, Initial::decay_rate, Split::axis0);
        lister.exact("decay_bias", {heads}, Initial::decay_bias, Split::axis0);
        // Shared by the heads.
        lister.exact("output_norm/weight", {options.value_width}, Initial::one, Split::none).gradient_part =
            GradientPart::of_heads;
    }

    std::int64_t scratch_floats(const config::ModelDescription& model, const config::LayerShape& layer,
                                std::int64_t tensor, const PassShape& shape, Type compute, int threads) const override {
        const DeltanetOptions options(model, layer);
        const std::int64_t rows = shape.rows(), keys = options.keys() / tensor, values = options.values() / tensor;
        const auto of_norm = [&](std::int64_t heads, std::int64_t width) {
            return kernels::cpu::row_sums_scratch_floats(rows * heads / tensor, width);
        };
        // The convolutions and norms share one buffer.
        return kernels::cpu::delta_scratch_floats(delta_shape(options, tensor, shape), compute, threads) +
               std::max({kernels::cpu::convolution_scratch_floats(rows, std::max(keys, values),
                                                                  ParameterLister::convolution_kernel, true),
                         of_norm(options.heads, options.value_width), of_norm(options.key_heads, options.key_width)});
    }

    std::size_t gpu_scratch_bytes(const config::ModelDescription& model, const config::LayerShape& layer,
                                  std::int64_t tensor, const PassShape& shape, Type compute) const override {
        const kernels::DeltaShape scan = delta_shape(DeltanetOptions(model, layer), tensor, shape);
        return static_cast<std::size_t>(kernels::delta_gpu_scratch(scan, compute).all());
    }

    SequenceDivision sequence_division() const override { return SequenceDivision::chain; }

    std::unique_ptr<Mixer> make(Backend& backend, const ParameterSet& parameters, const config::ModelDescription& model,
                                const config::LayerShape& layer, const Neighbours& neighbours) const override {
        return make_deltanet_mixer(backend, parameters, model, layer, DeltanetOptions(model, layer), neighbours);
    }
};

}  // namespace

DeltanetOptions::DeltanetOptions(const config::ModelDescription& model, const config::LayerShape& layer) {
    const config::Options given = model.options.at(section_name);
    const auto value = [&](const char* key, std::int64_t otherwise) {
        const std::int64_t number = given.integer(key);
        return number > 0 ? number : otherwise;
    };
    heads = value("heads", layer.heads);
    key_heads = value("key_heads", heads);
    key_width = value("key_width", layer.head_width);
    value_width = value("value_width", layer.head_width);
}

std::unique_ptr<MixerType> gated_deltanet_type() {
    return std::make_unique<GatedDeltanetType>();
}

}  // namespace lockstep::model
