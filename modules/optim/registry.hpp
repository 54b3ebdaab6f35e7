// The optimizers of this program by name (optimizer.kind).
#pragma once

#include <memory>
#include <string>

#include "optim/optimizer.hpp"

namespace lockstep::optim {

// Makes an optimizer and its keys known for the rest of the program's run; before main, or at the start of a test. The
// result is true, for static objects. Fault error where the name is taken.
inline bool register_optimizer(std::unique_ptr<const OptimizerType> type) {
    return config::register_kind(config::Family::optimizer, std::move(type));
}
const OptimizerType& optimizer_named(const std::string& name);  // usage error that lists all where there is none
const OptimizerType& optimizer_of(const config::OptimizerSection& settings);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup);  // of its settings' kind

}  // namespace lockstep::optim
