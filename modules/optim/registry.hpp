// Optimizers by name (optimizer.kind).
#pragma once

#include <memory>
#include <string>

#include "optim/optimizer.hpp"

namespace lockstep::optim {

// Registers an optimizer and its keys for the rest of the process; before main, or at the start of a test. Returns
// true, for static objects. A duplicate name: fault error.
inline bool register_optimizer(std::unique_ptr<const OptimizerType> type) {
    return config::register_kind(config::Family::optimizer, std::move(type));
}
const OptimizerType& optimizer_named(const std::string& name);  // unknown: usage error that lists all
const OptimizerType& optimizer_of(const config::OptimizerSection& settings);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup);  // of its settings' kind

}  // namespace lockstep::optim
