// Divides cores among ranks: disjointly where there are enough, in equal parts, each part near its memory.
#pragma once

#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

using CoreList = std::vector<int>;  // indices into Hardware::cores, ascending

// `homes`: for each rank the cores it may get, at least one. Returns each rank's part of its home. Ranks whose homes do
// not overlap others' get all of it. Of overlapping homes a core goes to one rank; where there are fewer cores than
// ranks, several get the same ones, whole NUMA nodes' worth.
std::vector<CoreList> divide_cores(const Hardware& hardware, const std::vector<CoreList>& homes);

}  // namespace lockstep::cluster
