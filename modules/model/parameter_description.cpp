#include "model/parameter_description.hpp"

#include <algorithm>
#include <cmath>

#include "model/frozen.hpp"
#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"
#include "model/parameter_lister.hpp"

namespace lockstep::model {
namespace {

void list_table(const config::ModelDescription& model, ParameterLister& lister) {
    lister.matrix("embedding/weight", {model.vocabulary, model.width}, Split::axis0);
}

void list_positions(const config::ModelDescription& model, ParameterLister& lister) {
    if (model.position == config::Position::learned)
        lister.matrix("position/weight", {model.context, model.width}, Split::none);
}

void list_head(const config::ModelDescription& model, ParameterLister& lister) {
    lister.norm("final_norm");
    if (!model.tied_head) lister.matrix("head/weight", {model.vocabulary, model.width}, Split::axis0);
}

void list_mlp(const config::ModelDescription& model, ParameterLister& lister) {
    const std::int64_t d = model.width, hidden = model.mlp_width;
    const bool bias = model.bias == config::Bias::all;
    if (model.mlp == config::MlpKind::swiglu) lister.linear("mlp/gate", hidden, d, Split::axis0, bias);
    lister.linear("mlp/up", hidden, d, Split::axis0, bias);
    lister.linear("mlp/down", d, hidden, Split::axis1, bias, lister.residual_deviation());
}

void list_block(const config::ModelDescription& model, std::vector<ParameterDescription>& list, std::int64_t number) {
    const MixerType& mixer = mixer_type(model.mixer(number));
    // GPT-2's scaling, unless the mixer opts out.
    const double deviation =
        ParameterLister::default_deviation /
        (mixer.scales_residual_projections() ? std::sqrt(2.0 * static_cast<double>(model.layers)) : 1);
    ParameterLister lister(model, list, block_prefix(number), deviation);
    ParameterLister of_mixer(model, list, mixer_prefix(number), deviation);
    if (mixer.convolves_before(model)) {
        lister.norm("pre_convolution_norm");
        lister.convolution("pre_convolution", Split::none);
    }
    lister.norm("mixer_norm");
    mixer.describe(model, model.layer(number), of_mixer);
    lister.norm("mlp_norm");
    list_mlp(model, lister);
}

}  // namespace

StageRange whole_model(const config::ModelDescription& model) {
    return {0, model.layers, true, true};
}

bool blocks_are_alike(const config::ModelDescription& model) {
    return !freezes(model) && model.period() == 1;
}

std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model,
                                                      const std::vector<StageRange>& ranges) {
    const auto any = [&](bool StageRange::*end) {
        return std::any_of(ranges.begin(), ranges.end(), [&](const StageRange& range) { return range.*end; });
    };
    const bool embedding = any(&StageRange::embedding), head = any(&StageRange::head);
    std::vector<ParameterDescription> list;
    ParameterLister lister(model, list);
    if (embedding || (head && model.tied_head)) list_table(model, lister);
    if (embedding) list_positions(model, lister);
    for (const StageRange& range : ranges)
        for (std::int64_t number = range.first_block; number < range.last_block; ++number)
            list_block(model, list, number);
    if (head) list_head(model, lister);
    return list;
}

std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model, const StageRange& range) {
    return describe_parameters(model, std::vector<StageRange>{range});
}

std::int64_t parameter_count(const config::ModelDescription& model) {
    std::int64_t count = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model)))
        count += element_count(parameter.shape);
    return count;
}

Slice slice_of(const ParameterDescription& parameter, const Part& part) {
    Slice slice;
    slice.axis = parameter.split == Split::axis1 ? 1 : 0;
    slice.shape = parameter.shape;
    const Part taken = parameter.split == Split::none ? Part{} : part;
    std::int64_t& extent = slice.shape[static_cast<std::size_t>(slice.axis)];
    slice.offset = taken.first(extent);
    slice.extent = extent = taken.count(extent);
    return slice;
}

ParameterLayout::ParameterLayout(std::vector<ParameterDescription> descriptions, Part part)
    : descriptions_(std::move(descriptions)), part_(part) {
    std::stable_partition(descriptions_.begin(), descriptions_.end(),
                          [](const ParameterDescription& parameter) { return parameter.trained; });
    for (const ParameterDescription& parameter : descriptions_) {
        slices_.push_back(slice_of(parameter, part));
        offsets_.push_back(total_);
        const Slice& slice = slices_.back();
        // Sized for the largest part, so that all ranks of a tensor group have the same layout.
        Shape largest = slice.shape;
        auto& extent = largest[static_cast<std::size_t>(slice.axis)];
        if (parameter.split != Split::none) {
            const std::int64_t whole = parameter.shape[static_cast<std::size_t>(slice.axis)];
            extent = (whole + part.size - 1) / part.size;
        }
        total_ += (element_count(largest) + alignment - 1) / alignment * alignment;
        if (parameter.trained) trained_total_ = total_;
    }
}

std::size_t ParameterLayout::at(std::int64_t position) const {
    const auto behind = std::upper_bound(offsets_.begin(), offsets_.end(), position);
    LOCKSTEP_ASSERT(behind != offsets_.begin());
    return static_cast<std::size_t>(behind - offsets_.begin()) - 1;
}

}  // namespace lockstep::model
