#include "optim/sgd.hpp"

#include "optim/registry.hpp"

namespace lockstep::optim {
namespace {

constexpr const char *sgd_name = "sgd", *velocity = "velocity";
constexpr double most_momentum = 0.9999;

class SgdType final : public OptimizerType {
  public:
    SgdType()
        : OptimizerType(sgd_name, sgd_name,
                        {{"momentum", 0.9, "Momentum coefficient.", 0, most_momentum},
                         {"nesterov", false, "Nesterov momentum: step along g + momentum · v."}}) {}
    std::vector<StateDescription> states(const model::ParameterDescription& parameter) const override {
        return {{velocity, parameter.shape, parameter.split}};
    }
    Granularity granularity(const model::ParameterDescription&) const override { return {}; }
    bool can_offload() const override { return true; }
    std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const override { return std::make_unique<Sgd>(setup); }
};

}  // namespace

std::unique_ptr<const OptimizerType> make_sgd_type() {
    return std::make_unique<SgdType>();
}

Sgd::Sgd(const OptimizerSetup& setup)
    : Optimizer(optimizer_named(sgd_name), setup), groups_(setup.updating(), setup.parameters, setup.settings) {}

void Sgd::apply(double learning_rate) {
    const config::Options own = settings().options.at(sgd_name);
    const kernels::MomentumSettings factors{static_cast<float>(learning_rate),
                                            static_cast<float>(own.number("momentum")), own.flag("nesterov"),
                                            groups_.table()};
    for_each_owned([&](std::size_t piece) {
        backend().momentum(parameters().owned_value(piece), owned_working(piece), owned_gradient(piece),
                           state().of_piece(velocity, piece), groups_.of_piece(piece), decision_here(), factors);
    });
}

}  // namespace lockstep::optim
