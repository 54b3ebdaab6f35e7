#include "optim/registry.hpp"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.hpp"
#include "optim/adamw.hpp"

extern "C" bool lockstep_optimizers;

namespace lockstep::optim {
namespace {

// Constructed on first use: optimizers register before main, in any order.
std::vector<std::unique_ptr<const OptimizerType>>& types() {
    static std::vector<std::unique_ptr<const OptimizerType>> list;
    return list;
}

}  // namespace

bool register_optimizer(std::unique_ptr<const OptimizerType> type) {
    config::register_optimizer(type->kind());
    types().push_back(std::move(type));
    return true;
}

const OptimizerType& optimizer_named(const std::string& name) {
    for (const auto& type : types())
        if (type->name() == name) return *type;
    throw usage_error("optimizer.kind = \"{}\" is unknown; the optimizers are {}", name,
                      fmt::join(config::optimizer_names(), ", "));
}

const OptimizerType& optimizer_of(const config::OptimizerSection& settings) {
    return optimizer_named(settings.kind);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup) {
    return optimizer_of(setup.settings).make(setup);
}

}  // namespace lockstep::optim

// Linked into every program that has the optimizers (REGISTERS in CMake).
bool lockstep_optimizers = lockstep::optim::register_optimizer(lockstep::optim::make_adamw_type());
