// Which rank of a node computes on which GPU.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

struct GpuWish {
    CpuSet allowed;         // the units the rank may use
    std::vector<int> gpus;  // indices into Hardware::gpus that it can see; none: it computes on the CPU
};

// The GPU of each rank, -1 for none. No two ranks share a GPU as long as each can have its own; then as few as possible
// do, neighbours together. Ranks that may use the same units are spread over all GPUs in the order of the cores near
// these; ranks that the launcher bound get GPUs near their units where there are any.
std::vector<int> choose_gpus(const Hardware& hardware, const std::vector<GpuWish>& wishes);

}  // namespace lockstep::cluster
