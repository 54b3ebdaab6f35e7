// Which links are slow among their kind, and which nodes.
#pragma once

#include <string>
#include <vector>

#include "doctor/links.hpp"

namespace lockstep::doctor {

// A link is slow below this part of what is usual for its kind. What is usual: the median of the links (of an even
// number the faster one of the two in the middle). With few nodes one slow node would be the median: three nodes have
// three links, and two of them lead to it; so up to `few_nodes` it is the median of each node's best link.
constexpr double slow_share = 0.6;
constexpr int few_nodes = 7;
// A latency is slow only if it is also so much longer, seconds: the rest is noise of the host.
constexpr double least_delay = 20e-6;

enum class Quantity { latency, rate, gpu_rate };

struct SlowLink {
    Link link;
    Quantity quantity = Quantity::rate;
    double value = 0, usual = 0;
};
struct SlowNode {
    int node = 0;
    int slow = 0, links = 0;  // to other nodes, all kinds of quantities together counted once
    SlowLink worst;
};
// One row of the table: a kind of links. 0: not measured.
struct LinkSummary {
    std::string kind;  // "between nodes"; between kinds of ports "…, InfiniBand 200 Gb/s"
    int links = 0;
    double latency = 0, longest_latency = 0;  // seconds: usual, worst
    double rate = 0, lowest_rate = 0;         // bytes a second
    double gpu_rate = 0, lowest_gpu_rate = 0;
    Link lowest;  // has the lowest rate
};

struct LinkJudgement {
    std::vector<LinkSummary> kinds;
    std::vector<SlowNode> nodes;  // most of whose links are slow
    std::vector<SlowLink> links;  // of other nodes: a slow quantity of each
};

// `ports`: by node, its kind of network port; links between different ones are kinds of their own.
LinkJudgement judge_links(const std::vector<LinkRate>& rates, const std::vector<RankSite>& ranks,
                          const std::vector<std::string>& ports);

}  // namespace lockstep::doctor
