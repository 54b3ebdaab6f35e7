// The energy of steps, over all nodes that have counters for it (device/energy.hpp).
#pragma once

#include <optional>

#include "device/energy.hpp"
#include "train/launch.hpp"

namespace lockstep::train {

class StepEnergy {
  public:
    // Collective. One rank of each node reads its counters; the log says which they are, or why there are none.
    explicit StepEnergy(const Launch& launch);
    // Collective: joules of all nodes since the last call, or since construction; 0 where no node has counters.
    double take();

  private:
    const Launch& launch_;
    std::optional<EnergyMeter> meter_;  // on the first rank of a node
    bool measured_ = false;             // by one node at least
};

}  // namespace lockstep::train
