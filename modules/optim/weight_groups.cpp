#include "optim/weight_groups.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.hpp"
#include "model/name_patterns.hpp"
#include "optim/parameter_ranges.hpp"

namespace lockstep::optim {

using kernels::WeightGroup;
using kernels::WeightGroups;

namespace {

// Adds the group if it is new.
std::size_t number_of(std::vector<WeightGroup>& groups, const WeightGroup& wanted) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const WeightGroup& group) {
        return group.rate_factor == wanted.rate_factor && group.decay == wanted.decay;
    });
    const auto number = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) groups.push_back(wanted);
    LOCKSTEP_ASSERT(groups.size() <= static_cast<std::size_t>(WeightGroups::most));  // config::most_groups sees to it
    return number;
}

}  // namespace

void check_groups(const config::OptimizerSection& settings, const config::ModelDescription& model) {
    if (settings.groups.empty()) return;
    const auto parameters = model::describe_parameters(model, model::whole_model(model));
    std::set<std::string> decided;
    for (const config::ParameterGroup& group : settings.groups) {
        model::check_pattern(group.match, "optimizer.groups", parameters);
        bool trained = false, decides = false;
        for (const model::ParameterDescription& parameter : parameters) {
            if (!parameter.trained || !model::matches(group.match, parameter.name)) continue;
            trained = true;
            decides = decided.insert(parameter.name).second || decides;
        }
        if (!trained)
            throw usage_error("optimizer.groups: the pattern \"{}\" matches frozen parameters only; remove the group{}",
                              group.match,
                              model.adapters.rank > 0 ? ": with adapters, only the adapters are trained"
                                                      : ", or take them from model.frozen");
        if (!decides)
            throw usage_error(
                "optimizer.groups: the pattern \"{}\" has no effect, since earlier patterns match all that it "
                "matches; move the group up, or remove it",
                group.match);
    }
}

WeightGroup group_of(const config::OptimizerSection& settings, const model::ParameterDescription& parameter) {
    WeightGroup result;
    if (settings.decay == config::Decay::all || parameter.matrix)
        result.decay = static_cast<float>(settings.weight_decay);
    for (const config::ParameterGroup& group : settings.groups) {
        if (!model::matches(group.match, parameter.name)) continue;
        result.rate_factor = static_cast<float>(group.rate_factor);
        if (group.decay != config::ParameterGroup::not_given) result.decay = static_cast<float>(group.decay);
        break;
    }
    return result;
}

GroupMap::GroupMap(kernels::Backend& backend, const model::ParameterSet& parameters,
                   const config::OptimizerSection& settings) {
    memory_ = planned(backend.device(), "weight groups", [&](Arena& arena) {
        words_.clear();
        for (const model::Piece& piece : parameters.owned())
            words_.push_back(arena.allocate(Type::int32, {WeightGroups::words_for(piece.count)}));
    });
    if (backend.device().imaginary) return;  // groups do not affect sizes
    std::vector<WeightGroup> groups;
    std::vector<std::vector<std::uint32_t>> words;
    for (const Tensor& tensor : words_) words.emplace_back(static_cast<std::size_t>(tensor.count()));
    for (const ParameterRange& range : ranges_of(parameters.layout(), parameters.owned())) {
        const auto group = static_cast<std::uint32_t>(
            number_of(groups, group_of(settings, parameters.descriptions()[range.parameter])));
        // Padding is zero in value, gradient and state: whatever its group, it stays so.
        const std::int64_t end = (range.begin + range.count + range.padding) / WeightGroups::elements;
        for (std::int64_t run = range.begin / WeightGroups::elements; run < end; ++run)
            words[range.piece][static_cast<std::size_t>(run / WeightGroups::runs_a_word)] |=
                group << (WeightGroups::bits * (run % WeightGroups::runs_a_word));
    }
    std::copy(groups.begin(), groups.end(), table_.begin());
    for (std::size_t piece = 0; piece < words_.size(); ++piece)
        if (words_[piece].count() > 0) backend.upload(words_[piece], words[piece].data());
}

}  // namespace lockstep::optim
