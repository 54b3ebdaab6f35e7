// The optimizers of this program by name (optimizer.kind).
#pragma once

#include <memory>
#include <string>

#include "optim/optimizer.hpp"

namespace lockstep::optim {

// Makes an optimizer known, for the rest of the program's run. Before anything asks for one by name.
void register_optimizer(std::unique_ptr<OptimizerType> type);
const OptimizerType& optimizer_named(const std::string& name);  // usage error that lists all where there is none
const OptimizerType& optimizer_of(const config::OptimizerSection& settings);
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup& setup);  // of its settings' kind

}  // namespace lockstep::optim
