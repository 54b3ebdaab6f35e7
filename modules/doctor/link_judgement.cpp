#include "doctor/link_judgement.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep::doctor {
namespace {

using Members = std::vector<const LinkRate*>;

// Of an even number the larger one of the two in the middle.
double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// More is better; 0: not measured.
double speed_of(const LinkRate& rate, Quantity quantity) {
    switch (quantity) {
        case Quantity::latency:
            return rate.latency > 0 ? 1 / rate.latency : 0;
        case Quantity::rate:
            return rate.rate;
        case Quantity::gpu_rate:
            return rate.gpu_rate;
    }
    return 0;
}

class Kind {
  public:
    Kind(std::string name, Members members, const std::vector<RankSite>& ranks)
        : name_(std::move(name)), members_(std::move(members)), ranks_(ranks) {}

    LinkSummary summary() const {
        LinkSummary of;
        of.kind = name_;
        of.links = static_cast<int>(members_.size());
        if (const double speed = usual(Quantity::latency); speed > 0) of.latency = 1 / speed;
        of.rate = usual(Quantity::rate);
        of.gpu_rate = usual(Quantity::gpu_rate);
        of.lowest = members_.front()->link;
        of.lowest_rate = members_.front()->rate;
        of.lowest_gpu_rate = members_.front()->gpu_rate;
        for (const LinkRate* member : members_) {
            of.longest_latency = std::max(of.longest_latency, member->latency);
            of.lowest_gpu_rate = std::min(of.lowest_gpu_rate, member->gpu_rate);
            if (member->rate >= of.lowest_rate) continue;
            of.lowest_rate = member->rate;
            of.lowest = member->link;
        }
        return of;
    }

    // Each link that has a slow quantity, with the first of them: a low rate says more than a long latency, which other
    // work on the two nodes may explain.
    std::vector<SlowLink> slow() const {
        std::vector<SlowLink> list;
        for (const LinkRate* member : members_)
            for (const Quantity quantity : {Quantity::rate, Quantity::gpu_rate, Quantity::latency}) {
                const double speed = speed_of(*member, quantity), of_all = usual(quantity);
                if (speed == 0 || of_all == 0 || speed / of_all >= slow_share) continue;
                const bool is_latency = quantity == Quantity::latency;
                if (is_latency && 1 / speed - 1 / of_all < least_delay) continue;
                list.push_back(
                    {member->link, quantity, is_latency ? 1 / speed : speed, is_latency ? 1 / of_all : of_all});
                break;
            }
        return list;
    }

  private:
    double usual(Quantity quantity) const {
        std::map<int, double> best;  // of each node
        std::vector<double> speeds;
        for (const LinkRate* member : members_) {
            const double speed = speed_of(*member, quantity);
            if (speed == 0) continue;
            speeds.push_back(speed);
            for (const int rank : {member->link.first, member->link.second}) {
                double& of_node = best[ranks_[static_cast<std::size_t>(rank)].node];
                of_node = std::max(of_node, speed);
            }
        }
        if (speeds.empty()) return 0;
        const bool few = members_.front()->link.kind == LinkKind::between_nodes &&
                         best.size() <= static_cast<std::size_t>(few_nodes);
        if (!few) return median(std::move(speeds));
        std::vector<double> of_nodes;
        for (const auto& [node, speed] : best) of_nodes.push_back(speed);
        return median(std::move(of_nodes));
    }

    std::string name_;
    Members members_;
    const std::vector<RankSite>& ranks_;
};

std::vector<Kind> kinds_of(const std::vector<LinkRate>& rates, const std::vector<RankSite>& ranks,
                           const std::vector<std::string>& ports) {
    const bool one_port = std::set<std::string>(ports.begin(), ports.end()).size() <= 1;
    std::map<std::tuple<LinkKind, std::string>, Members> members;
    for (const LinkRate& rate : rates) {
        std::string name = rate.link.kind == LinkKind::in_numa_node ? "within a NUMA node"
                           : rate.link.kind == LinkKind::in_node    ? "between NUMA nodes"
                                                                    : "between nodes";
        if (rate.link.kind == LinkKind::between_nodes && !one_port) {
            const auto port = [&](int rank) {
                return ports[static_cast<std::size_t>(ranks[static_cast<std::size_t>(rank)].node)];
            };
            const auto [low, high] = std::minmax({port(rate.link.first), port(rate.link.second)});
            name += ", " + (low == high ? low : low + " to " + high);
        }
        members[{rate.link.kind, name}].push_back(&rate);
    }
    std::vector<Kind> kinds;
    for (auto& [key, list] : members) kinds.emplace_back(std::get<1>(key), std::move(list), ranks);
    return kinds;
}

// A low rate before a long latency, then the one that is farther from what is usual.
bool is_worse(const SlowLink& a, const SlowLink& b) {
    const auto order = [](const SlowLink& slow) {
        const bool is_latency = slow.quantity == Quantity::latency;
        return std::pair(is_latency, is_latency ? slow.usual / slow.value : slow.value / slow.usual);
    };
    return order(a) < order(b);
}

// Names the node with the largest part of slow links, leaves its links out, and so on: a node is not to blame for its
// links to slow ones.
std::vector<SlowNode> take_slow_nodes(std::vector<SlowLink>& slow, const std::vector<LinkRate>& rates,
                                      const std::vector<RankSite>& ranks) {
    const auto node_of = [&](int rank) { return ranks[static_cast<std::size_t>(rank)].node; };
    std::set<int> left_out;
    std::vector<SlowNode> named;
    while (true) {
        const auto counts = [&](const Link& link) {
            return link.kind == LinkKind::between_nodes && !left_out.contains(node_of(link.first)) &&
                   !left_out.contains(node_of(link.second));
        };
        std::map<int, SlowNode> nodes;
        for (const LinkRate& rate : rates)
            if (counts(rate.link))
                for (const int rank : {rate.link.first, rate.link.second}) ++nodes[node_of(rank)].links;
        for (const SlowLink& link : slow)
            if (counts(link.link))
                for (const int rank : {link.link.first, link.link.second}) {
                    SlowNode& node = nodes[node_of(rank)];
                    if (node.slow == 0 || is_worse(link, node.worst)) node.worst = link;
                    ++node.slow;
                }
        SlowNode* most = nullptr;
        for (auto& [number, node] : nodes) {
            node.node = number;
            const bool is_slow = node.links >= 2 && 2 * node.slow > node.links;
            if (is_slow && (!most || node.slow * most->links > most->slow * node.links)) most = &node;
        }
        if (!most) break;
        named.push_back(*most);
        left_out.insert(most->node);
    }
    std::erase_if(slow, [&](const SlowLink& link) {
        return link.link.kind == LinkKind::between_nodes &&
               (left_out.contains(node_of(link.link.first)) || left_out.contains(node_of(link.link.second)));
    });
    return named;
}

}  // namespace

LinkJudgement judge_links(const std::vector<LinkRate>& rates, const std::vector<RankSite>& ranks,
                          const std::vector<std::string>& ports) {
    LinkJudgement judgement;
    for (const Kind& kind : kinds_of(rates, ranks, ports)) {
        judgement.kinds.push_back(kind.summary());
        const std::vector<SlowLink> slow = kind.slow();
        judgement.links.insert(judgement.links.end(), slow.begin(), slow.end());
    }
    judgement.nodes = take_slow_nodes(judgement.links, rates, ranks);
    return judgement;
}

}  // namespace lockstep::doctor
