// Stochastic gradient descent with momentum (Sutskever et al. 2013), an optimizer that the product does not know: every
// parameter is updated whole, by the rank that keeps its momentum. On CPUs.
//     m ← momentum · m + g;  w ← w − learning rate · m
#pragma once

#include "optim/optimizer.hpp"

namespace lockstep::tests {

// optimizer.kind = "momentum-sgd"; [optimizer.momentum-sgd] momentum. Registered before main.
const optim::OptimizerType& momentum_sgd();

}  // namespace lockstep::tests
