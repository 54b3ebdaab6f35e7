#include "optim/optimizer.hpp"

namespace lockstep::optim {

Optimizer::Optimizer(const OptimizerType& type, const OptimizerSetup& setup)
    : type_(type),
      setup_(setup),
      state_(setup.backend.device(), setup.parameters, type, setup.settings.averages()),
      decision_(setup.backend),
      norm_(setup.backend, setup.parameters, setup.norm) {}

void Optimizer::update(double learning_rate, Tensor loss) {
    norm_.sum(decision_.totals());
    backend().decide_update(decision(), loss, decision_.totals(), settings().clip, setup_.scaling);
    apply(learning_rate);
    setup_.parameters.refresh_exact(backend());
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

Tensor Optimizer::owned_working(std::size_t piece) const {
    const model::Piece& owned = parameters().owned()[piece];
    const Tensor working = parameters().all_working();
    return working.empty() ? working : working.slice(owned.first, owned.count);
}

Tensor Optimizer::owned_gradient(std::size_t piece) const {
    return parameters().owned_gradients(parameters().owned()[piece]);
}

std::size_t optimizer_bytes(const OptimizerType& type, const OptimizerSetup& setup) {
    return type.make(setup)->bytes();
}

}  // namespace lockstep::optim
