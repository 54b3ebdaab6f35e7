// Assigns a node's GPUs to its ranks.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

struct GpuRequest {
    CpuSet allowed;         // units the rank may use
    std::vector<int> gpus;  // visible GPUs, indices into Hardware::gpus; none: computes on the CPU
};

// The GPU of each rank, -1 for none. No GPU is shared while each rank can have its own; otherwise as few as possible
// are, by neighbouring ranks. Ranks with equal CPU sets are spread over all GPUs in the order of their nearby cores;
// ranks bound by the launcher get GPUs near their units if there are any.
std::vector<int> choose_gpus(const Hardware& hardware, const std::vector<GpuRequest>& requests);

}  // namespace lockstep::cluster
