#include "optim/adamw.hpp"

namespace lockstep::optim {
namespace {

constexpr const char *first_moment = "first_moment", *second_moment = "second_moment";

class AdamWType final : public OptimizerType {
  public:
    const std::string& name() const override { return name_; }
    std::vector<StateDescription> states(const model::ParameterDescription& parameter) const override {
        return {{first_moment, parameter.shape, parameter.split}, {second_moment, parameter.shape, parameter.split}};
    }
    Granularity granularity(const model::ParameterDescription&) const override { return {}; }
    std::unique_ptr<Optimizer> make(const OptimizerSetup& setup) const override {
        return std::make_unique<AdamW>(setup);
    }

  private:
    std::string name_ = "adamw";
};

}  // namespace

const OptimizerType& adamw_type() {
    static const AdamWType type;
    return type;
}

AdamW::AdamW(const OptimizerSetup& setup)
    : Optimizer(adamw_type(), setup), decays_(setup.backend, setup.parameters, setup.settings) {}

void AdamW::apply(double learning_rate) {
    const kernels::AdamWSettings factors{static_cast<float>(learning_rate), static_cast<float>(settings().beta1),
                                         static_cast<float>(settings().beta2), static_cast<float>(settings().epsilon),
                                         static_cast<float>(settings().weight_decay)};
    for (std::size_t piece = 0; piece < parameters().owned().size(); ++piece)
        if (parameters().owned()[piece].count > 0)
            backend().adamw(parameters().owned_value(piece), owned_working(piece), owned_gradient(piece),
                            state().of_piece(first_moment, piece), state().of_piece(second_moment, piece),
                            decays_.of_piece(piece), decision(), factors);
}

}  // namespace lockstep::optim
