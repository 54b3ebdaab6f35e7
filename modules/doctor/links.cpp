#include "doctor/links.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::doctor {
namespace {

// Rounds of several groups that have nothing to do with each other become rounds of all.
void merge(std::vector<std::vector<Link>>& all, const std::vector<Round>& rounds, const std::vector<int>& ranks,
           LinkKind kind) {
    if (all.size() < rounds.size()) all.resize(rounds.size());
    for (std::size_t i = 0; i < rounds.size(); ++i)
        for (const auto& [a, b] : rounds[i]) {
            const int first = ranks[static_cast<std::size_t>(a)], second = ranks[static_cast<std::size_t>(b)];
            all[i].push_back({std::min(first, second), std::max(first, second), kind});
        }
}

}  // namespace

std::vector<int> speakers(const std::vector<RankSite>& ranks) {
    std::map<int, int> lowest;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) lowest.emplace(ranks[rank].node, static_cast<int>(rank));
    std::vector<int> list;
    for (const auto& [node, rank] : lowest) list.push_back(rank);
    return list;
}

LinkPlan plan_links(const std::vector<RankSite>& ranks) {
    std::map<int, std::map<int, std::vector<int>>> nodes;  // node, NUMA node: ranks
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        nodes[ranks[rank].node][ranks[rank].numa_node].push_back(static_cast<int>(rank));
    std::vector<std::vector<Link>> in_numa_nodes, in_nodes, between;
    for (const auto& [node, numa_nodes] : nodes) {
        std::vector<int> first_ones;
        for (const auto& [numa_node, members] : numa_nodes) first_ones.push_back(members.front());
        const auto two = std::find_if(numa_nodes.begin(), numa_nodes.end(),
                                      [](const auto& numa_node) { return numa_node.second.size() > 1; });
        if (two != numa_nodes.end()) merge(in_numa_nodes, every_pair(2), two->second, LinkKind::in_numa_node);
        merge(in_nodes, every_pair(static_cast<int>(first_ones.size())), first_ones, LinkKind::in_node);
    }
    merge(between, enough_pairs(static_cast<int>(nodes.size())), speakers(ranks), LinkKind::between_nodes);
    LinkPlan plan;
    plan.all_pairs = nodes.size() <= most_for_all_pairs;
    for (auto* part : {&in_numa_nodes, &in_nodes, &between})
        plan.rounds.insert(plan.rounds.end(), part->begin(), part->end());
    return plan;
}

}  // namespace lockstep::doctor
