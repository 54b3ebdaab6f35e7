// Nodes as numbers, and their ranks.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cluster {

// Which node each rank is on, numbered by their lowest ranks.
std::vector<int> number_nodes(const std::vector<std::string>& hosts);
std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& nodes);

}  // namespace lockstep::cluster
