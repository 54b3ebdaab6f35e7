#include "layout/lane_tree.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace lockstep::layout {
namespace {

// Where a node's right half begins.
std::int64_t middle(const LaneNode& node) {
    const auto below = static_cast<std::uint64_t>(node.last - node.first - 1);
    return node.first + static_cast<std::int64_t>(std::bit_floor(below));
}

void collect_largest(const LaneNode& node, const LaneNode& among, std::vector<LaneNode>& nodes) {
    if (node.last <= among.first || node.first >= among.last) return;
    if (node.first >= among.first && node.last <= among.last) {
        nodes.push_back(node);
        return;
    }
    collect_largest({node.first, middle(node)}, among, nodes);
    collect_largest({middle(node), node.last}, among, nodes);
}

}  // namespace

LaneTree::LaneTree(std::int64_t lanes, std::int64_t replicas) : lanes_(lanes), of_replica_(lanes / replicas) {
    LOCKSTEP_ASSERT(lanes % replicas == 0);
}

std::vector<LaneNode> LaneTree::leaves(std::int64_t replica) const {
    std::vector<LaneNode> nodes;
    for (std::int64_t lane = 0; lane < of_replica_; ++lane)
        nodes.push_back({replica * of_replica_ + lane, replica * of_replica_ + lane + 1});
    return nodes;
}

std::vector<LaneNode> LaneTree::largest(std::int64_t replica) const {
    std::vector<LaneNode> nodes;
    collect_largest({0, lanes_}, {replica * of_replica_, (replica + 1) * of_replica_}, nodes);
    return nodes;
}

double LaneTree::most_nodes() const {
    std::size_t most = 0;
    for (std::int64_t replica = 0; replica < lanes_ / of_replica_; ++replica)
        most = std::max(most, largest(replica).size());
    return static_cast<double>(most);
}

bool LaneTree::are_halves(const LaneNode& left, const LaneNode& right) const {
    LaneNode node{0, lanes_};
    while (node.first != left.first || node.last != right.last) {
        if (node.last - node.first < 2) return false;
        if (right.last <= middle(node))
            node.last = middle(node);
        else if (left.first >= middle(node))
            node.first = middle(node);
        else
            return false;
    }
    return left.last == middle(node);
}

std::vector<std::size_t> LaneTree::sums_behind(const std::vector<LaneNode>& nodes) const {
    std::vector<std::size_t> sums;
    std::vector<LaneNode> stack;
    for (const LaneNode& node : nodes) {
        stack.push_back(node);
        sums.push_back(0);
        while (stack.size() > 1 && are_halves(stack[stack.size() - 2], stack.back())) {
            stack[stack.size() - 2].last = stack.back().last;
            stack.pop_back();
            ++sums.back();
        }
    }
    return sums;
}

std::vector<std::size_t> LaneTree::waiting_behind(std::int64_t replica) const {
    std::vector<std::size_t> waiting;
    std::size_t now = 0;
    for (const std::size_t sums : sums_behind(leaves(replica))) {
        now = now + 1 - sums;
        waiting.push_back(now);
    }
    return waiting;
}

std::size_t LaneTree::most_waiting(std::int64_t replica) const {
    const std::vector<std::size_t> waiting = waiting_behind(replica);
    return waiting.size() == 1 ? 0 : *std::max_element(waiting.begin(), waiting.end() - 1);
}

}  // namespace lockstep::layout
