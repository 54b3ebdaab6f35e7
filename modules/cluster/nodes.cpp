#include "cluster/nodes.hpp"

#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace lockstep::cluster {

RankPlace place_among(std::vector<std::string> hosts, int rank) {
    RankPlace place;
    place.hosts = std::move(hosts);
    place.host = place.hosts[static_cast<std::size_t>(rank)];
    place.local_ranks = 0;
    std::unordered_set<std::string_view> before;
    for (std::size_t other = 0; other < place.hosts.size(); ++other) {
        const std::string& name = place.hosts[other];
        if (name != place.host) {
            if (place.local_ranks == 0) before.insert(name);
            continue;
        }
        if (place.local_ranks == 0) place.node = static_cast<int>(before.size());
        if (static_cast<int>(other) < rank) ++place.local_rank;
        ++place.local_ranks;
    }
    return place;
}

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
