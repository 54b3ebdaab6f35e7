#include "optim/optimizer.hpp"

namespace lockstep::optim {

Optimizer::Optimizer(const OptimizerType& type, const OptimizerSetup& setup)
    : type_(type),
      setup_(setup),
      state_(setup.parameters.offloaded() ? setup.parameters.host() : setup.backend.device(), setup.parameters, type,
             setup.settings.averages()),
      decision_(setup.backend),
      norm_(setup.backend, setup.parameters, setup.norm) {
    if (!setup.parameters.offloaded()) return;
    LOCKSTEP_ASSERT(setup.host != nullptr && type.can_offload());
    offloaded_ = std::make_unique<OffloadedGradients>(setup.backend, setup.parameters);
}

std::size_t Optimizer::bytes() const {
    return decision_.bytes() + (offloaded_ ? 0 : state_.bytes() + other_bytes());
}

std::size_t Optimizer::host_bytes() const {
    return offloaded_ ? state_.bytes() + other_bytes() + offloaded_->bytes() : 0;
}

void Optimizer::update(double learning_rate, Tensor loss) {
    norm_.sum(decision_.totals());
    setup_.backend.decide_update(decision(), loss, decision_.totals(), settings().clip, setup_.scaling);
    if (offloaded_) offloaded_->fetch(decision());
    apply(learning_rate);
    setup_.parameters.refresh_exact(setup_.backend);
    if (!settings().averages()) return;
    const double decay = settings().ema;
    for (std::size_t piece = 0; piece < parameters().owned().size(); ++piece)
        if (parameters().owned()[piece].count > 0)
            backend().blend(state().of_piece(average_state, piece), parameters().owned_value(piece),
                            static_cast<float>(decay), static_cast<float>(1 - decay));
}

void Optimizer::begin_averages(const std::function<bool(const model::ParameterDescription&)>& of) {
    if (!settings().averages()) return;
    for (const ParameterRange& range : ranges_of(parameters().layout(), parameters().owned()))
        if (range.count > 0 && of(parameters().descriptions()[range.parameter]))
            backend().copy(state().of_range(average_state, range),
                           parameters().owned_value(range.piece).slice(range.begin, range.count));
}

void Optimizer::for_each_owned(const std::function<void(std::size_t)>& update) const {
    for (std::size_t piece = 0; piece < parameters().owned().size(); ++piece) {
        if (parameters().owned()[piece].count == 0) continue;
        if (offloaded_) offloaded_->wait(piece);
        update(piece);
        if (offloaded_) parameters().send(setup_.backend, piece);
    }
}

Tensor Optimizer::owned_working(std::size_t piece) const {
    if (offloaded_) return parameters().compute_type() == Type::fp32 ? Tensor() : parameters().owned_sent(piece);
    const model::Piece& owned = parameters().owned()[piece];
    const Tensor working = parameters().all_working();
    return working.empty() ? working : working.slice(owned.first, owned.count);
}

Tensor Optimizer::decision_here() const {
    return offloaded_ ? offloaded_->decision() : decision();
}

Tensor Optimizer::owned_gradient(std::size_t piece) const {
    if (offloaded_) return offloaded_->gradient(piece);
    return parameters().owned_gradients(parameters().owned()[piece]);
}

}  // namespace lockstep::optim
