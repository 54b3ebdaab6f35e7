#include "optim/registry.hpp"

#include <vector>

#include "base/error.hpp"
#include "optim/adamw.hpp"

namespace lockstep::optim {
namespace {

std::vector<std::unique_ptr<OptimizerType>>& registered() {
    static std::vector<std::unique_ptr<OptimizerType>> types;
    return types;
}

}  // namespace

void register_optimizer(std::unique_ptr<OptimizerType> type) {
    registered().push_back(std::move(type));
}

const OptimizerType& optimizer_named(const std::string& name) {
    if (name == adamw_type().name()) return adamw_type();
    for (const auto& type : registered())
        if (type->name() == name) return *type;
    throw usage_error("there is no optimizer named {}", name);
}

const OptimizerType& optimizer_of(const config::OptimizerSection&) {
    return adamw_type();
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup) {
    return optimizer_of(setup.settings).make(setup);
}

}  // namespace lockstep::optim
