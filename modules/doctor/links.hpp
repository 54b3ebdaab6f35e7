// The links that are measured, and what each achieves.
#pragma once

#include <string>
#include <vector>

#include "doctor/schedule.hpp"

namespace lockstep::doctor {

// Where a rank runs.
struct RankSite {
    int node = 0;
    int numa_node = 0;  // the first one of its memory
};

enum class LinkKind { in_numa_node, in_node, between_nodes };

struct Link {
    int first = 0, second = 0;  // world ranks, the lower one first
    LinkKind kind = LinkKind::between_nodes;
    friend bool operator==(const Link&, const Link&) = default;
};

// No rank is in two links of a round.
struct LinkPlan {
    std::vector<std::vector<Link>> rounds;
    bool all_pairs = true;  // or a sample of the pairs of nodes
};
// Between nodes the lowest rank of each talks; within one, the lowest rank of each NUMA node, and two ranks of the
// first NUMA node that has two.
LinkPlan plan_links(const std::vector<RankSite>& ranks);

// By node, its lowest rank.
std::vector<int> speakers(const std::vector<RankSite>& ranks);

// Bytes a second are those of one direction while both are in use; GPU memory's, those of one direction alone. 0: not
// measured.
struct LinkRate {
    Link link;
    double latency = 0;  // seconds, one way
    double rate = 0;
    double gpu_rate = 0;
};

}  // namespace lockstep::doctor
