#include "doctor/link_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"

namespace lockstep::doctor {
namespace {

constexpr std::size_t most_named = 20;

std::string gb_per_second(double rate) {
    return fmt::format("{:.3g}", rate * 1e-9);
}

// "12 % of the usual rate, 0.14 instead of 1.2 GB/s"
std::string how_slow(const SlowLink& slow) {
    if (slow.quantity == Quantity::latency)
        return fmt::format("a message takes {} instead of {}", human_seconds(slow.value), human_seconds(slow.usual));
    return fmt::format("{:.0f} % of the usual rate, {} instead of {} GB/s{}", 100 * slow.value / slow.usual,
                       gb_per_second(slow.value), gb_per_second(slow.usual),
                       slow.quantity == Quantity::gpu_rate ? " between GPUs" : "");
}

Finding of_node(const SlowNode& node, const std::vector<std::string>& hosts) {
    return {"slow-node",
            fmt::format("{} of its {} links to other nodes are slow; the slowest: {}", node.slow, node.links,
                        how_slow(node.worst)),
            {hosts[static_cast<std::size_t>(node.node)]},
            "leave the node out (docs/lost-nodes.md, excluded-nodes) and tell the site: its card, cable or switch port",
            ""};
}

Finding of_link(const SlowLink& slow, const std::vector<RankSite>& ranks, const std::vector<std::string>& hosts) {
    const auto host = [&](int rank) {
        return hosts[static_cast<std::size_t>(ranks[static_cast<std::size_t>(rank)].node)];
    };
    const std::string a = host(slow.link.first), b = host(slow.link.second);
    if (slow.link.kind == LinkKind::between_nodes)
        return {"slow-link",
                fmt::format("the link is slow: {}", how_slow(slow)),
                {a, b},
                "try each with other nodes; if only this pair is slow, tell the site: the network between them",
                ""};
    return {
        "slow-memory",
        fmt::format("messages between ranks {} and {} are slow: {}", slow.link.first, slow.link.second, how_slow(slow)),
        {a},
        "look for other programs there (top) and check the binding (lockstep topo)",
        ""};
}

}  // namespace

std::vector<Finding> slow_links(const LinkJudgement& judgement, const std::vector<RankSite>& ranks,
                                const std::vector<std::string>& hosts) {
    std::vector<Finding> findings;
    for (const SlowNode& node : judgement.nodes) findings.push_back(of_node(node, hosts));
    for (std::size_t i = 0; i < judgement.links.size() && i < most_named; ++i)
        findings.push_back(of_link(judgement.links[i], ranks, hosts));
    if (judgement.links.size() > most_named)
        findings.push_back(
            {"slow-link",
             fmt::format("{} more links are slow", judgement.links.size() - most_named),
             {},
             "lockstep doctor --format json lists all; this many slow links point to a switch or to other jobs",
             ""});
    return findings;
}

std::vector<Finding> below_ports(const std::vector<LinkRate>& rates, const LinkJudgement& judgement,
                                 const std::vector<RankSite>& ranks, const std::vector<NodeFacts>& nodes) {
    std::set<int> slow;
    for (const SlowNode& node : judgement.nodes) slow.insert(node.node);
    struct Best {
        double share = 0, rate = 0;
    };
    std::map<int, Best> best;
    for (const LinkRate& link : rates) {
        if (link.link.kind != LinkKind::between_nodes) continue;
        const int a = ranks[static_cast<std::size_t>(link.link.first)].node;
        const int b = ranks[static_cast<std::size_t>(link.link.second)].node;
        const NetworkPort* ports[] = {fastest(nodes[static_cast<std::size_t>(a)].ports),
                                      fastest(nodes[static_cast<std::size_t>(b)].ports)};
        if (!ports[0] || !ports[1]) continue;
        const double port_rate = std::min(ports[0]->gigabits, ports[1]->gigabits) * 1e9 / 8;
        const double rate = std::max(link.rate, link.gpu_rate);
        for (const int node : {a, b}) {
            Best& of_node = best[node];
            if (rate / port_rate >= of_node.share) of_node = {rate / port_rate, rate};
        }
    }
    struct Group {
        std::vector<std::string> hosts;
        double rate = 0;
    };
    std::map<std::string, Group> groups;  // by port
    for (const auto& [number, of_node] : best) {
        if (of_node.share >= slow_share || slow.contains(number)) continue;
        const NodeFacts& node = nodes[static_cast<std::size_t>(number)];
        const NetworkPort& port = *fastest(node.ports);
        Group& group = groups[fmt::format("{} {}, {:g} Gb/s, which is {} GB/s", fabric_name(port.fabric), port.name,
                                          port.gigabits, gb_per_second(port.gigabits * 1e9 / 8))];
        group.hosts.push_back(node.host);
        group.rate = std::max(group.rate, of_node.rate);
    }
    std::vector<Finding> findings;
    for (const auto& [port, group] : groups)
        findings.push_back({"below-port",
                            fmt::format("no link reaches {:.0f} % of the fastest port that is up ({}); the best has {} "
                                        "GB/s",
                                        100 * slow_share, port, gb_per_second(group.rate)),
                            group.hosts,
                            "check the transports above: sockets or another network may carry the messages, or the "
                            "fabric may be busy",
                            ""});
    return findings;
}

}  // namespace lockstep::doctor
