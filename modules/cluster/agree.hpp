// Agreement before anyone throws: a rank that throws alone would leave the others waiting in their next collective.
#pragma once

#include <functional>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

// Collective. Runs `work` on rank 0 only; when it throws, every rank throws the same Error.
void on_root(Communicator& communicator, const std::function<void()>& work);

// Collective. Runs `work` on every rank; when any throws, every rank throws the Error of the lowest rank that did.
void together(Communicator& communicator, const std::function<void()>& work);

}  // namespace lockstep::cluster
