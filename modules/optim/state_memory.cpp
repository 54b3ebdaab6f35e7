#include "optim/state_memory.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::optim {
namespace {

std::size_t axis_of(model::Split split) {
    return split == model::Split::axis1 ? 1 : 0;
}

// A rank's slice of a state: divided like its parameter.
model::Slice slice_of_state(const OptimizerType& type, const StateDescription& state,
                            const model::ParameterDescription& parameter, const model::Slice& of_parameter) {
    if (state.shape.empty())
        throw fault_error("{}: the state {} of {} has no axes", type.name(), state.name, parameter.name);
    model::Slice slice{0, 0, state.shape[0], state.shape};
    if (parameter.split == model::Split::none || state.split == model::Split::none) return slice;
    const std::size_t axis = axis_of(state.split);
    if (axis >= state.shape.size() || state.shape[axis] != parameter.shape[axis_of(parameter.split)])
        throw fault_error("{}: the state {} of {} is {}, of which axis {} cannot be cut as the parameter's {} is",
                          type.name(), state.name, parameter.name, shape_text(state.shape), axis,
                          shape_text(parameter.shape));
    slice.axis = static_cast<int>(axis);
    slice.offset = of_parameter.offset;
    slice.extent = slice.shape[axis] = of_parameter.extent;
    return slice;
}

const StateDescription* find_state(const std::vector<StateDescription>& states, const std::string& name) {
    const auto found =
        std::find_if(states.begin(), states.end(), [&](const StateDescription& state) { return state.name == name; });
    return found == states.end() ? nullptr : &*found;
}

}  // namespace

StateMemory::StateMemory(Device device, const model::ParameterSet& parameters, const OptimizerType& type, bool averages)
    : parameters_(parameters), type_(type), averages_(averages) {
    plan(parameters, type);
    memory_ = Arena(device, static_cast<std::size_t>(total_) * sizeof(float) + Arena::device_alignment,
                    "the optimizer's state");
    if (total_ > 0) all_ = memory_.allocate(Type::fp32, {total_});
}

void StateMemory::plan(const model::ParameterSet& parameters, const OptimizerType& type) {
    const auto& descriptions = parameters.descriptions();
    const std::vector<ParameterRange> ranges = ranges_of(parameters.layout(), parameters.owned());
    std::vector<std::vector<StateDescription>> states;  // of each range's parameter
    for (const ParameterRange& range : ranges) {
        states.push_back(states_of(type, averages_, descriptions[range.parameter]));
        for (const StateDescription& state : states.back())
            if (std::find(states_.begin(), states_.end(), state.name) == states_.end()) states_.push_back(state.name);
    }
    const std::size_t pieces = parameters.owned().size();
    runs_.resize(states_.size() * pieces);
    for (std::size_t state = 0; state < states_.size(); ++state)
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            const StateDescription* description = find_state(states[i], states_[state]);
            if (description == nullptr) continue;
            const ParameterRange& range = ranges[i];
            const model::ParameterDescription& parameter = descriptions[range.parameter];
            Place place{
                state, range.parameter, range.piece, range.first, range.count, total_, range.count + range.padding};
            if (description->shape != parameter.shape || description->split != parameter.split) {
                if (range.first > 0 || range.count < parameters.layout().count(range.parameter))
                    throw fault_error("{}: the state {} of {} is not of its shape, yet ZeRO may cut the parameter",
                                      type.name(), description->name, parameter.name);
                constexpr std::int64_t unit = model::ParameterLayout::alignment;
                const model::Slice& slice = parameters.layout().slice(range.parameter);
                place.count = element_count(slice_of_state(type, *description, parameter, slice).shape);
                place.padded = (place.count + unit - 1) / unit * unit;
            }
            places_.push_back(place);
            Run& run = runs_[state * pieces + range.piece];
            if (run.count == 0) run.offset = total_;
            run.count += place.padded;
            total_ += place.padded;
        }
}

std::size_t StateMemory::number_of(const std::string& state) const {
    const auto found = std::find(states_.begin(), states_.end(), state);
    return static_cast<std::size_t>(found - states_.begin());  // past the end if nothing is owned
}

StateMemory::Kept StateMemory::kept(const std::string& state, std::size_t parameter) const {
    const model::ParameterDescription& description = parameters_.descriptions()[parameter];
    const std::vector<StateDescription> states = states_of(type_, averages_, description);
    const StateDescription* found = find_state(states, state);
    LOCKSTEP_ASSERT(found != nullptr);
    return {found->shape, slice_of_state(type_, *found, description, parameters_.layout().slice(parameter))};
}

Tensor StateMemory::of_piece(const std::string& state, std::size_t piece) const {
    const std::int64_t count = parameters_.owned()[piece].count;
    if (count == 0) return {};
    const std::size_t number = number_of(state);
    LOCKSTEP_ASSERT(number < states_.size());
    const Run& run = runs_[number * parameters_.owned().size() + piece];
    LOCKSTEP_ASSERT(run.count == count);
    return all_.slice(run.offset, count);
}

Tensor StateMemory::of_range(const std::string& state, const ParameterRange& range) const {
    const std::size_t number = number_of(state);
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& one) {
        return one.state == number && one.parameter == range.parameter && one.first == range.first;
    });
    LOCKSTEP_ASSERT(place != places_.end() && place->count == range.count);
    return all_.slice(place->offset, place->count);
}

Tensor StateMemory::of_parameter(const std::string& state, std::size_t parameter) const {
    const std::size_t number = number_of(state);
    for (const Place& place : places_) {
        if (place.state != number || place.parameter != parameter) continue;
        const Kept what = kept(state, parameter);
        LOCKSTEP_ASSERT(place.first == 0 && place.count == element_count(what.slice.shape));
        return all_.slice(place.offset, place.count).reshaped(what.slice.shape);
    }
    return {};
}

std::vector<StatePart> StateMemory::parts() const {
    std::vector<StatePart> parts;
    for (const Place& place : places_) {
        const std::string& state = states_[place.state];
        Kept what = kept(state, place.parameter);
        parts.push_back({state + "/" + parameters_.descriptions()[place.parameter].name, std::move(what.shape),
                         std::move(what.slice), place.first, all_.slice(place.offset, place.count)});
    }
    return parts;
}

}  // namespace lockstep::optim
