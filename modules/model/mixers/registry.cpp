#include "model/mixers/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"
#include "model/mixer.hpp"
#include "model/mixers/attention.hpp"
#include "model/mixers/deltanet.hpp"
#include "model/mixers/ttt.hpp"

namespace lockstep::model {

std::string MixerType::why_impossible(const config::ModelDescription&, const config::LayerShape& layer,
                                      const MixerLayout& layout) const {
    if (layer.heads % layout.tensor != 0)
        return fmt::format("parallel.tensor = {} does not divide model.heads = {}", layout.tensor, layer.heads);
    if (layout.context > 1 && sequence_division() == SequenceDivision::none)
        return fmt::format("parallel.context = {} divides sequences, but {} needs all tokens of a sequence",
                           layout.context, name());
    if (layout.length % layout.context != 0)
        return fmt::format("parallel.context = {} does not divide batch.length = {}", layout.context, layout.length);
    return "";
}

std::string why_stretches_are_impossible(const MixerLayout& layout) {
    constexpr std::int64_t reach = ParameterLister::convolution_kernel - 1;  // of a convolution
    if (layout.length % layout.context != 0)
        return fmt::format("parallel.context = {} does not divide batch.length = {}", layout.context, layout.length);
    if (layout.context > 1 && layout.length / layout.context < reach)
        return fmt::format("batch.length = {} leaves {} ranks fewer than {} tokens each", layout.length, layout.context,
                           reach);
    return "";
}

const MixerType& mixer_type(const std::string& name) {
    const config::Kind* kind = config::find_kind(config::Family::mixer, name);
    if (const auto* type = dynamic_cast<const MixerType*>(kind)) return *type;
    throw usage_error("model.mixer = {} is unknown; the mixers are {}", config::toml_text(name),
                      joined(config::kind_names(config::Family::mixer), "and"));
}

std::vector<const MixerType*> mixer_types(const config::ModelDescription& model) {
    std::vector<const MixerType*> list;
    for (const std::string& name : model.mixers) {
        const MixerType* type = &mixer_type(name);
        if (std::find(list.begin(), list.end(), type) == list.end()) list.push_back(type);
    }
    return list;
}

bool divides_sequences(const config::ModelDescription& model) {
    const std::vector<const MixerType*> types = mixer_types(model);
    return std::none_of(types.begin(), types.end(),
                        [](const MixerType* type) { return type->sequence_division() == SequenceDivision::none; });
}

bool exchanges_along_sequences(const config::ModelDescription& model) {
    const std::vector<const MixerType*> types = mixer_types(model);
    return std::any_of(types.begin(), types.end(),
                       [](const MixerType* type) { return type->sequence_division() == SequenceDivision::exchange; });
}

std::string why_documents_are_joined(const config::ModelDescription& model, std::int64_t length,
                                     const std::string& key) {
    for (const MixerType* type : mixer_types(model)) {
        if (!type->keeps_documents_apart())
            return fmt::format("the mixer {} does not keep documents apart; set data.documents = \"joined\"",
                               type->name());
        const std::int64_t alignment = type->document_alignment(model);
        if (length % alignment != 0)
            return fmt::format(
                "{} = {} is not a multiple of {} tokens, to which {} aligns separate documents "
                "(its mini-batch); make it {}",
                key, length, alignment, type->name(), std::max(length / alignment, std::int64_t{1}) * alignment);
    }
    return "";
}

std::int64_t document_alignment(const config::ModelDescription& model) {
    std::int64_t tokens = 1;
    for (const MixerType* type : mixer_types(model)) tokens = std::lcm(tokens, type->document_alignment(model));
    return tokens;
}

}  // namespace lockstep::model

// Named by REGISTERS in CMake, so that every program that links this library has its mixers.
extern "C" bool lockstep_mixers;
bool lockstep_mixers = lockstep::model::register_mixer(lockstep::model::attention_type()) &&
                       lockstep::model::register_mixer(lockstep::model::ttt_linear_type()) &&
                       lockstep::model::register_mixer(lockstep::model::ttt_mlp_type()) &&
                       lockstep::model::register_mixer(lockstep::model::gated_deltanet_type());
