// The optimizers of this program. Linked into every program that has them (REGISTERS in CMake).
#include "config/registry.hpp"

extern "C" bool lockstep_optimizers;

// Its beta1, beta2 and epsilon are keys of [optimizer] itself.
bool lockstep_optimizers = lockstep::config::register_optimizer({"adamw", ""});
