#include "layout/lane_tree.hpp"

#include <bit>

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

}  // namespace lockstep::layout
