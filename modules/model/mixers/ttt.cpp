#include "model/mixers/ttt.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "model/mixers/attention_keys.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t mlp_expansion = 4;

constexpr const char* section_name = "ttt";

std::vector<config::OptionKey> keys_of_ttt() {
    return {{"mini_batch", 16, "Tokens of one inner step.", 1},
            {"base_lr", 0.0, "Inner learning rate. 0: 1.0 for `ttt-linear`, 0.1 for `ttt-mlp`.", 0},
            {"base_lr_warmup", 0.0,
             "Initial inner learning rate; reaches `base_lr` over `schedule.warmup`. 0: no warm-up.", 0},
            {"gate", false, "Gate the mixer's output."},
            {"share_qk", false, "Queries and keys share one projection, each with its own convolution."},
            {"pre_conv", false, "Causal convolution before each mixer."}};
}

class TttType final : public MixerType {
  public:
    TttType(const std::string& name, bool mlp, double default_base_lr)
        : MixerType(name, section_name, keys_of_ttt()), mlp_(mlp), default_base_lr_(default_base_lr) {}

    void resolve(config::ModelDescription& model) const override {
        config::Options& given = model.options.change(section_name);
        // Where several mixers share the section, each keeps its own default.
        if (given.number("base_lr") == 0 && !shares_section(model)) given.set("base_lr", default_base_lr_);
    }

    bool has_attention_keys() const override { return false; }  // it rotates by itself

    // A stretch of a divided sequence begins with a mini-batch.
    std::int64_t document_alignment(const config::ModelDescription& model) const override {
        return options(model).mini_batch;
    }

    bool keeps_documents_apart() const override { return true; }

    void check(const config::ModelDescription& model, const config::LayerShape& layer) const override {
        const TttOptions ttt = options(model);
        if (ttt.base_lr_warmup > ttt.base_lr)
            throw usage_error(
                "model.ttt.base_lr_warmup = {} is more than model.ttt.base_lr = {}; the inner rate rises from the "
                "former to the latter",
                ttt.base_lr_warmup, ttt.base_lr);
        if (layer.heads * layer.head_width != model.width)
            throw usage_error(
                "model.head_width = {} with model.heads = {}: the heads of {} divide model.width = {}; remove "
                "head_width",
                layer.head_width, layer.heads, name(), model.width);
        if (ttt.base_lr_warmup > 0 && shares_section(model) && TttOptions(model).base_lr == 0)
            throw usage_error(
                "model.ttt.base_lr_warmup = {}: give model.ttt.base_lr too, since the mixers of this model have "
                "different defaults",
                ttt.base_lr_warmup);
        if (layer.head_width % 2 != 0)
            throw usage_error(
                "model.head_width = {}: rotation needs an even width; change model.width = {} or model.heads = {}",
                layer.head_width, model.width, layer.heads);
        if (!config::has_attention_keys(model)) refuse_attention_keys(model, layer, name());
    }

    std::string why_impossible(const config::ModelDescription& model, const config::LayerShape& layer,
                               const MixerLayout& layout) const override {
        if (const std::string why = MixerType::why_impossible(model, layer, layout); !why.empty()) return why;
        const TttOptions ttt(model);
        if (layout.divides_rows && layout.tensor > 1 && ttt.pre_conv)
            return "parallel.sequence = true splits rows that the convolution of model.ttt.pre_conv = true needs "
                   "together";
        if (layout.context == 1) return "";
        const std::int64_t unit = layout.context * ttt.mini_batch;
        if (layout.length % unit != 0)
            return fmt::format(
                "batch.length = {} is not a multiple of parallel.context x model.ttt.mini_batch = {}: each rank's part "
                "of a sequence must be whole mini-batches",
                layout.length, unit);
        return why_stretches_are_impossible(layout);
    }

    void describe(const config::ModelDescription& model, const config::LayerShape& layer,
                  ParameterLister& lister) const override {
        const TttOptions ttt(model);
        const std::int64_t d = model.width, heads = layer.heads, f = layer.head_width, g = hidden(layer);
        // Next to each other, so that they are one matrix (model/projections.hpp).
        lister.linear("query", d, d, Split::axis0, false);
        if (!ttt.share_qk) lister.linear("key", d, d, Split::axis0, false);
        lister.linear("value", d, d, Split::axis0, false);
        lister.matrix("step_size/weight", {heads, 1, d}, Split::axis0);
        if (ttt.share_qk) {
            lister.convolution("query_convolution", Split::axis0);
            lister.convolution("key_convolution", Split::axis0);
        }
        if (ttt.gate) lister.linear("gate", d, d, Split::axis0, false);
        lister.linear("output", d, d, Split::axis1, false, lister.residual_deviation());
        lister.matrix("inner/weight1", {heads, f, g}, Split::axis0).exact = true;
        lister.exact("inner/bias1", {heads, 1, g}, Initial::zero, Split::axis0);
        if (mlp_) {
            lister.matrix("inner/weight2", {heads, g, f}, Split::axis0).exact = true;
            lister.exact("inner/bias2", {heads, 1, f}, Initial::zero, Split::axis0);
        }
        lister.exact("inner_norm/weight", {heads, f}, Initial::one, Split::axis0);
        lister.exact("inner_norm/bias", {heads, f}, Initial::zero, Split::axis0);
        lister.exact("step_size/bias", {heads, 1}, Initial::zero, Split::axis0);
        lister.exact("token_step", {ttt.mini_batch}, Initial::zero, Split::none).gradient_part = GradientPart::of_heads;
        lister.exact("post_norm/weight", {d}, Initial::one, Split::axis0);
        lister.exact("post_norm/bias", {d}, Initial::zero, Split::axis0);
    }

    bool convolves_before(const config::ModelDescription& model) const override { return TttOptions(model).pre_conv; }

    double initial_inner_rate(const config::ModelDescription& model) const override {
        const TttOptions ttt = options(model);
        return ttt.base_lr_warmup > 0 ? ttt.base_lr_warmup / ttt.base_lr : 1;
    }

    void settle_inner_rate(config::ModelDescription& model, double factor) const override {
        config::Options& ttt = model.options.change(section_name);
        ttt.set("base_lr", options(model).base_lr * factor);
        ttt.set("base_lr_warmup", 0.0);
    }

    std::int64_t scratch_floats(const config::ModelDescription& model, const config::LayerShape& layer,
                                std::int64_t tensor, const PassShape& shape, Type compute, int threads) const override {
        return kernels::cpu::ttt_scratch_floats(
            {mlp_, shape.batch, shape.length, layer.heads / tensor, layer.head_width, TttOptions(model).mini_batch},
            compute, threads);
    }

    std::unique_ptr<Mixer> make(Backend& backend, const ParameterSet& parameters, const config::ModelDescription& model,
                                const config::LayerShape& layer, const Neighbours& neighbours) const override {
        return make_ttt_mixer(backend, parameters, model, layer, options(model), mlp_, neighbours);
    }

    SequenceDivision sequence_division() const override { return SequenceDivision::chain; }
    bool scales_residual_projections() const override { return false; }

  private:
    static bool shares_section(const config::ModelDescription& model) {
        const std::vector<const config::Kind*> mixers = config::mixers_of(model);
        return std::count_if(mixers.begin(), mixers.end(),
                             [](const config::Kind* kind) { return kind->section() == section_name; }) > 1;
    }

    // With the default inner rate filled in.
    TttOptions options(const config::ModelDescription& model) const {
        TttOptions options(model);
        if (options.base_lr == 0) options.base_lr = default_base_lr_;
        return options;
    }

    // Columns of the inner model's first layer.
    std::int64_t hidden(const config::LayerShape& layer) const { return (mlp_ ? mlp_expansion : 1) * layer.head_width; }

    bool mlp_;
    double default_base_lr_;
};

}  // namespace

TttOptions::TttOptions(const config::ModelDescription& model) {
    const config::Options given = model.options.at(section_name);
    mini_batch = given.integer("mini_batch");
    base_lr = given.number("base_lr");
    base_lr_warmup = given.number("base_lr_warmup");
    gate = given.flag("gate");
    share_qk = given.flag("share_qk");
    pre_conv = given.flag("pre_conv");
}

std::unique_ptr<MixerType> ttt_linear_type() {
    return std::make_unique<TttType>("ttt-linear", false, 1.0);
}

std::unique_ptr<MixerType> ttt_mlp_type() {
    return std::make_unique<TttType>("ttt-mlp", true, 0.1);
}

}  // namespace lockstep::model
