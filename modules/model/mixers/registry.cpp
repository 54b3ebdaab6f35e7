#include "model/mixers/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"
#include "model/mixer.hpp"
#include "model/mixers/attention.hpp"
#include "model/mixers/ttt.hpp"

namespace lockstep::model {
namespace {

using Types = std::vector<std::unique_ptr<MixerType>>;

void add(Types& types, std::unique_ptr<MixerType> type) {
    config::Kind kind{type->name(), type->section(), type->keys()};
    kind.resolve = [of = type.get()](config::ModelDescription& model) { of->resolve(model); };
    kind.check = [of = type.get()](const config::ModelDescription& model) { of->check(model); };
    config::register_mixer(kind);
    types.push_back(std::move(type));
}

// Constructed on first use: other translation units may register types before main, in any order.
Types& types() {
    static Types all = [] {
        Types own;
        add(own, attention_type());
        add(own, ttt_linear_type());
        add(own, ttt_mlp_type());
        return own;
    }();
    return all;
}

const MixerType* find(const std::string& name) {
    const auto found =
        std::find_if(types().begin(), types().end(), [&](const auto& type) { return type->name() == name; });
    return found == types().end() ? nullptr : found->get();
}

}  // namespace
}  // namespace lockstep::model

// Named by REGISTERS in CMake, so that every program linking this library has its mixers' keys.
extern "C" bool lockstep_mixers;
bool lockstep_mixers = !lockstep::model::types().empty();

namespace lockstep::model {

std::string MixerType::why_impossible(const config::ModelDescription& model, const MixerLayout& layout) const {
    if (model.heads % layout.tensor != 0)
        return fmt::format("parallel.tensor = {} does not divide model.heads = {}", layout.tensor, model.heads);
    if (layout.context > 1 && !hands_over())
        return fmt::format("parallel.context = {} divides sequences for {} only; {} needs all tokens of a sequence",
                           layout.context, names_that_hand_over(), name_);
    return "";
}

void register_mixer(std::unique_ptr<MixerType> type) {
    add(types(), std::move(type));
}

const MixerType& mixer_type(const config::ModelDescription& model) {
    if (const MixerType* type = find(model.mixer)) return *type;
    std::vector<std::string> names;
    for (const auto& type : types()) names.push_back(type->name());
    throw usage_error("model.mixer = {} is unknown; the mixers are {}", config::toml_text(model.mixer),
                      fmt::join(names, ", "));
}

std::string names_that_hand_over() {
    std::vector<std::string> names;
    for (const auto& type : types())
        if (type->hands_over()) names.push_back(type->name());
    return joined(names, "and");
}

}  // namespace lockstep::model
