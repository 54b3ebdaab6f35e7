// Where ranks are: nodes as numbers, and their ranks.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cluster {

struct RankPlace {
    std::string host;
    int node = 0;        // numbered by their lowest rank
    int local_rank = 0;  // among the ranks of this node
    int local_ranks = 1;
    std::vector<std::string> hosts;  // of every rank
};
// Of one rank, from the host names of all.
RankPlace place_among(std::vector<std::string> hosts, int rank);

// Which node each rank is on, numbered by their lowest ranks.
std::vector<int> number_nodes(const std::vector<std::string>& hosts);
std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& nodes);

}  // namespace lockstep::cluster
