#include "optim/offloaded_gradients.hpp"

#include <algorithm>

namespace lockstep::optim {

OffloadedGradients::OffloadedGradients(kernels::Backend& backend, const model::ParameterSet& parameters)
    : backend_(backend), parameters_(parameters) {
    memory_ = planned(parameters.host(), "gradients in host memory", [&](Arena& arena) {
        decision_ = arena.allocate(Type::fp64, {kernels::Decision::places});
        gradients_.clear();
        for (const model::Piece& piece : parameters.owned())
            gradients_.push_back(piece.count > 0 ? arena.allocate(Type::fp32, {piece.count}) : Tensor());
    });
    copied_.resize(gradients_.size());
}

void OffloadedGradients::fetch(Tensor decision) {
    for (std::size_t piece = 0; piece < gradients_.size(); ++piece) {
        if (gradients_[piece].empty()) continue;
        backend_.copy(gradients_[piece], parameters_.owned_gradients(parameters_.owned()[piece]));
        copied_[piece] = backend_.read_later(decision);
    }
}

void OffloadedGradients::wait(std::size_t piece) {
    const std::vector<double>& decision = copied_[piece]->get();
    std::copy(decision.begin(), decision.end(), decision_.fp64());
    copied_[piece].reset();
}

}  // namespace lockstep::optim
