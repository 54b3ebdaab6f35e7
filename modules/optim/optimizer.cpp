#include "optim/optimizer.hpp"

namespace lockstep::optim {

Optimizer::Optimizer(const OptimizerType& type, const OptimizerSetup& setup)
    : type_(type), setup_(setup), state_(setup.backend.device(), setup.parameters, type), decision_(setup.backend) {}

void Optimizer::update(double learning_rate, Tensor loss) {
    sum_gradients(backend(), parameters().all_gradients(), setup_.norm, decision_.totals());
    backend().decide_update(decision(), loss, decision_.totals(), settings().clip, setup_.scaling);
    apply(learning_rate);
    setup_.parameters.refresh_exact(backend());
}

Tensor Optimizer::owned_working(std::size_t piece) const {
    const model::Piece& owned = parameters().owned()[piece];
    const Tensor working = parameters().all_working();
    return working.empty() ? working : working.slice(owned.first, owned.count);
}

Tensor Optimizer::owned_gradient(std::size_t piece) const {
    const model::Piece& owned = parameters().owned()[piece];
    return parameters().all_gradients().slice(owned.first, owned.count);
}

std::size_t optimizer_bytes(const OptimizerType& type, const OptimizerSetup& setup) {
    return type.make(setup)->bytes();
}

}  // namespace lockstep::optim
