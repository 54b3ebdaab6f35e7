#include "optim/registry.hpp"

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "optim/adamw.hpp"
#include "optim/muon.hpp"
#include "optim/sgd.hpp"

extern "C" bool lockstep_optimizers;

namespace lockstep::optim {

const OptimizerType& optimizer_named(const std::string& name) {
    const config::Kind* kind = config::find_kind(config::Family::optimizer, name);
    if (const auto* type = dynamic_cast<const OptimizerType*>(kind)) return *type;
    throw usage_error("optimizer.kind = \"{}\" is unknown; the optimizers are {}", name,
                      fmt::join(config::kind_names(config::Family::optimizer), ", "));
}

const OptimizerType& optimizer_of(const config::OptimizerSection& settings) {
    return optimizer_named(settings.kind);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup) {
    return optimizer_of(setup.settings).make(setup);
}

}  // namespace lockstep::optim

// Linked into every program that has the optimizers (REGISTERS in CMake).
bool lockstep_optimizers = lockstep::optim::register_optimizer(lockstep::optim::make_adamw_type()) &&
                           lockstep::optim::register_optimizer(lockstep::optim::make_muon_type()) &&
                           lockstep::optim::register_optimizer(lockstep::optim::make_sgd_type());
