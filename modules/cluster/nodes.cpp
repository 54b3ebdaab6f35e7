#include "cluster/nodes.hpp"

#include <map>

namespace lockstep::cluster {

std::vector<int> number_nodes(const std::vector<std::string>& hosts) {
    std::map<std::string, int> known;
    std::vector<int> nodes;
    for (const std::string& host : hosts)
        nodes.push_back(known.emplace(host, static_cast<int>(known.size())).first->second);
    return nodes;
}

std::vector<std::vector<int>> ranks_of_nodes(const std::vector<int>& nodes) {
    std::vector<std::vector<int>> ranks;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        const auto node = static_cast<std::size_t>(nodes[rank]);
        if (node >= ranks.size()) ranks.resize(node + 1);
        ranks[node].push_back(static_cast<int>(rank));
    }
    return ranks;
}

}  // namespace lockstep::cluster
