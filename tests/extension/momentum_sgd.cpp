#include "extension/momentum_sgd.hpp"

#include "base/error.hpp"
#include "device/convert.hpp"
#include "optim/parameter_ranges.hpp"
#include "optim/registry.hpp"

namespace lockstep::tests {
namespace {

using kernels::Decision;

const std::string kind_name = "momentum-sgd", momentum_name = "momentum";

class MomentumSgd final : public optim::Optimizer {
  public:
    explicit MomentumSgd(const optim::OptimizerSetup& setup)
        : Optimizer(momentum_sgd(), setup),
          momentum_(static_cast<float>(setup.settings.options.at(kind_name).number("momentum"))) {
        const Device device = setup.backend.device();
        if (device.kind == DeviceKind::cuda && !device.imaginary) throw usage_error("{} runs on CPUs only", kind_name);
    }

  private:
    void apply(double learning_rate) override {
        for (const optim::ParameterRange& range : optim::ranges_of(parameters().layout(), parameters().owned())) {
            const Tensor working = owned_working(range.piece);
            const auto part = [&](Tensor piece) { return piece.slice(range.begin, range.count); };
            update(static_cast<float>(learning_rate), part(parameters().owned_value(range.piece)),
                   working.empty() ? working : part(working), part(owned_gradient(range.piece)),
                   state().of_parameter(momentum_name, range.parameter));
        }
    }

    void update(float rate, Tensor value, Tensor working, Tensor gradient, Tensor momentum) {
        const std::int64_t count = value.count();
        LOCKSTEP_ASSERT(momentum.count() == count);
        kernels::CustomWork work{"momentum_sgd"};
        work.bytes = static_cast<double>(count) * 5 * sizeof(float);
        backend().custom(work, [=, this] {
            if (decision().fp64()[Decision::proceed] == 0) return;
            const auto factor = static_cast<float>(decision().fp64()[Decision::factor]);
            float *w = value.fp32(), *m = momentum.fp32();
            const float* g = gradient.fp32();
            for (std::int64_t i = 0; i < count; ++i) {
                m[i] = momentum_ * m[i] + factor * g[i];
                w[i] -= rate * m[i];
            }
            if (!working.empty()) from_fp32(working.type(), working.data(), w, count);
        });
    }

    float momentum_;
};

class MomentumSgdType final : public optim::OptimizerType {
  public:
    MomentumSgdType()
        : OptimizerType(kind_name, kind_name,
                        {{"momentum", 0.9, "How much of the last step's momentum is kept.", 0, 1}}) {}
    std::vector<optim::StateDescription> states(const model::ParameterDescription& parameter) const override {
        return {{momentum_name, parameter.shape, parameter.split}};
    }
    optim::Granularity granularity(const model::ParameterDescription&) const override {
        return {optim::Granularity::Unit::matrix};
    }
    std::unique_ptr<optim::Optimizer> make(const optim::OptimizerSetup& setup) const override {
        return std::make_unique<MomentumSgd>(setup);
    }
};

const bool registered = optim::register_optimizer(std::make_unique<MomentumSgdType>());

}  // namespace

const optim::OptimizerType& momentum_sgd() {
    return optim::optimizer_named(kind_name);
}

}  // namespace lockstep::tests
