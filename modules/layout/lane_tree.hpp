// The order in which the gradients of a step are added up where that may not depend on the number of replicas
// (parallel.lanes). A step's micro-batches are divided into lanes of equal length; the sums of lanes are the leaves of
// one binary tree, whatever the replicas. Each replica has neighbouring lanes, adds up those nodes of the tree that it
// has whole, and passes on the largest of them: O(log lanes) many, never their sum.
//
// A node of n lanes has the largest power of two below n on its left, so that most replicas' lanes are few nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::layout {

struct LaneNode {
    std::int64_t first = 0, last = 0;  // lanes [first, last)
    bool operator==(const LaneNode&) const = default;
};

class LaneTree {
  public:
    LaneTree(std::int64_t lanes, std::int64_t replicas);  // which divide the lanes evenly

    std::int64_t lanes() const { return lanes_; }
    std::int64_t lanes_of_replica() const { return of_replica_; }
    std::vector<LaneNode> leaves(std::int64_t replica) const;
    // The largest nodes that a replica has whole, ascending; together they are its lanes.
    std::vector<LaneNode> largest(std::int64_t replica) const;
    double most_nodes() const;  // of these, of any replica
    // For nodes that follow each other, put on a stack one by one: how many times, behind each, the two on top are
    // added up, since they are the halves of a node.
    std::vector<std::size_t> sums_behind(const std::vector<LaneNode>& nodes) const;
    // How many sums of a replica's nodes wait for later ones behind each of its lanes.
    std::vector<std::size_t> waiting_behind(std::int64_t replica) const;
    std::size_t most_waiting(std::int64_t replica) const;  // behind all but the last

  private:
    bool are_halves(const LaneNode& left, const LaneNode& right) const;
    std::int64_t lanes_, of_replica_;
};

}  // namespace lockstep::layout
