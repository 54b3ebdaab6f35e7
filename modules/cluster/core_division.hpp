// Divides cores among ranks: disjoint if there are enough, in equal parts, each near its memory.
#pragma once

#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

using CoreList = std::vector<int>;  // indices into Hardware::cores, ascending

// `homes`: the cores each rank may get, at least one. Returns each rank's part of its home. A home that overlaps no
// other is given whole. In overlapping homes each core goes to one rank; with fewer cores than ranks, several ranks
// share the same cores, by whole NUMA nodes.
std::vector<CoreList> divide_cores(const Hardware& hardware, const std::vector<CoreList>& homes);

}  // namespace lockstep::cluster
