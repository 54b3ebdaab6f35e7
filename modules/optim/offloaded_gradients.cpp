#include "optim/offloaded_gradients.hpp"

#include <algorithm>

namespace lockstep::optim {

OffloadedGradients::OffloadedGradients(kernels::Backend& backend, const model::ParameterSet& parameters)
    : backend_(backend), parameters_(parameters) {
    std::int64_t largest = 0;
    for (std::size_t piece = 0; piece < parameters.owned().size(); ++piece) {
        places_.push_back(pieces_.size());
        if (parameters.owned()[piece].count > 0) pieces_.push_back(piece);
        largest = std::max(largest, parameters.owned()[piece].count);
    }
    memory_ = planned(parameters.host(), "gradients in host memory", [&](Arena& arena) {
        decision_ = arena.allocate(Type::fp64, {kernels::Decision::places});
        for (std::size_t i = 0; i < std::min(buffer_count, pieces_.size()); ++i)
            buffers_[i] = arena.allocate(Type::fp32, {largest});
    });
    copied_.resize(pieces_.size());
}

void OffloadedGradients::begin(std::size_t place) {
    if (place >= pieces_.size()) return;
    const std::size_t piece = pieces_[place];
    backend_.copy(gradient(piece), parameters_.owned_gradients(parameters_.owned()[piece]));
    copied_[place] = backend_.read_later(device_decision_);
}

void OffloadedGradients::fetch(Tensor decision) {
    device_decision_ = decision;
    for (std::size_t place = 0; place + 1 < buffer_count; ++place) begin(place);
}

void OffloadedGradients::wait(std::size_t piece) {
    const std::size_t place = places_[piece];
    const std::vector<double>& decision = copied_[place]->get();
    std::copy(decision.begin(), decision.end(), decision_.fp64());
    copied_[place].reset();
    begin(place + buffer_count - 1);  // where the piece before was
}

Tensor OffloadedGradients::gradient(std::size_t piece) const {
    return buffers_[places_[piece] % buffer_count].slice(0, parameters_.owned()[piece].count);
}

}  // namespace lockstep::optim
