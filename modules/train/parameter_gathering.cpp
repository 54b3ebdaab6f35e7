#include "train/parameter_gathering.hpp"

#include <algorithm>
#include <string>

namespace lockstep::train {

ParameterGathering::ParameterGathering(const Launch& launch, const TrainingState& state, trace::Tracer* tracer,
                                       const Regions& regions)
    : state_(state),
      devices_(launch.devices),
      groups_(launch.groups),
      timer_{tracer, launch.devices},
      region_(regions.communication.data) {
    if (!state.parameters->divides_values()) return;
    const model::ParameterLayout& layout = state.parameters->layout();
    const config::ModelDescription& model = launch.description.model;
    windows_ = state.gradient_plan.buckets;
    windows_.insert(windows_.end(), state.gradient_plan.frozen.begin(), state.gradient_plan.frozen.end());
    for (std::size_t window = 0; window < windows_.size(); ++window) {
        const model::Piece& range = windows_[window].range;
        for (std::size_t i = layout.at(range.first); i < layout.size() && layout.offset(i) < range.first + range.count;
             ++i)
            for (const model::ModelPart part : model::parts_with(model, layout.descriptions()[i].name)) {
                std::vector<std::size_t>& windows = needed_[part.place];
                if (std::find(windows.begin(), windows.end(), window) == windows.end()) windows.push_back(window);
            }
    }
}

const std::vector<std::size_t>& ParameterGathering::windows_of(model::ModelPart part) const {
    static const std::vector<std::size_t> none;
    const auto found = needed_.find(part.place);
    return found == needed_.end() ? none : found->second;
}

bool ParameterGathering::has(std::size_t window) const {
    const auto held = held_.find(windows_[window].buffer);
    return held != held_.end() && held->second == window;
}

void ParameterGathering::begin(std::size_t window) {
    const layout::Bucket& bucket = windows_[window];
    for (const std::size_t other : under_way_) LOCKSTEP_ASSERT(windows_[other].buffer != bucket.buffer);
    state_.parameters->fill_own_part(*devices_.backend, bucket.range);
    groups_.gathers->begin_all_gather(state_.parameters->window(bucket.range), bucket.cuts);
    held_[bucket.buffer] = window;
    under_way_.push_back(window);
}

void ParameterGathering::need(model::ModelPart part, std::optional<model::ModelPart> next) {
    const std::vector<std::size_t>& wanted = windows_of(part);
    for (const std::size_t window : wanted)
        if (!has(window)) begin(window);
    const auto is_under_way = [&](std::size_t window) {
        return std::find(under_way_.begin(), under_way_.end(), window) != under_way_.end();
    };
    if (std::any_of(wanted.begin(), wanted.end(), is_under_way)) {
        timer_.phase(timed_, region_, "communication", [&] { groups_.gathers->finish_collectives(); });
        under_way_.clear();
    }
    if (!next) return;
    // What the next part needs may not take the place of what this one reads.
    for (const std::size_t window : windows_of(*next)) {
        const auto shares = [&](std::size_t other) { return windows_[window].buffer == windows_[other].buffer; };
        if (!has(window) && std::none_of(wanted.begin(), wanted.end(), shares)) begin(window);
    }
}

void ParameterGathering::forget() {
    if (!under_way_.empty()) groups_.gathers->finish_collectives();
    under_way_.clear();
    held_.clear();
}

}  // namespace lockstep::train
