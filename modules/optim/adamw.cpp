#include "optim/adamw.hpp"

#include "optim/registry.hpp"

namespace lockstep::optim {
namespace {

constexpr const char *adamw_name = "adamw", *first_moment = "first_moment", *second_moment = "second_moment";

class AdamWType final : public OptimizerType {
  public:
    AdamWType() : OptimizerType(adamw_name) {}  // beta1, beta2 and epsilon are keys of [optimizer] itself
    std::vector<StateDescription> states(const model::ParameterDescription& parameter) const override {
        return {{first_moment, parameter.shape, parameter.split}, {second_moment, parameter.shape, parameter.split}};
    }
    Granularity granularity(const model::ParameterDescription&) const override { return {}; }
    bool can_offload() const override { return true; }
    std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const override {
        return std::make_unique<AdamW>(setup);
    }
};

}  // namespace

std::unique_ptr<const OptimizerType> make_adamw_type() {
    return std::make_unique<AdamWType>();
}

AdamW::AdamW(const OptimizerSetup& setup)
    : Optimizer(optimizer_named(adamw_name), setup), groups_(setup.updating(), setup.parameters, setup.settings) {}

void AdamW::apply(double learning_rate) {
    const kernels::AdamWSettings factors{static_cast<float>(learning_rate), static_cast<float>(settings().beta1),
                                         static_cast<float>(settings().beta2), static_cast<float>(settings().epsilon),
                                         groups_.table()};
    for_each_owned([&](std::size_t piece) {
        backend().adamw(parameters().owned_value(piece), owned_working(piece), owned_gradient(piece),
                        state().of_piece(first_moment, piece), state().of_piece(second_moment, piece),
                        groups_.of_piece(piece), decision_here(), factors);
    });
}

}  // namespace lockstep::optim
