// The order in which lanes are added up does not depend on who has which.
#define BOOST_TEST_MODULE lane_tree
#include <bit>
#include <boost/test/unit_test.hpp>
#include <string>

#include "layout/batch_plan.hpp"
#include "layout/lane_buffers.hpp"
#include "layout/lane_tree.hpp"

using namespace lockstep;
using namespace lockstep::layout;

namespace {

// What comes of nodes put on a stack one by one, as a term.
std::vector<std::string> terms_of(const LaneTree& tree, const std::vector<LaneNode>& nodes,
                                  const std::vector<std::string>& terms) {
    const std::vector<std::size_t> sums = tree.sums_behind(nodes);
    BOOST_TEST_REQUIRE(sums.size() == nodes.size());
    std::vector<std::string> stack;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        stack.push_back(terms[node]);
        for (std::size_t sum = 0; sum < sums[node]; ++sum) {
            const std::string right = stack.back();
            stack.pop_back();
            stack.back() = "(" + stack.back() + "+" + right + ")";
        }
    }
    return stack;
}

// Replicas add up their own lanes, and someone the nodes of all.
std::string term_of(std::int64_t lanes, std::int64_t replicas) {
    const LaneTree tree(lanes, replicas);
    std::vector<LaneNode> nodes;
    std::vector<std::string> terms;
    for (std::int64_t replica = 0; replica < replicas; ++replica) {
        const std::vector<LaneNode> leaves = tree.leaves(replica), largest = tree.largest(replica);
        std::vector<std::string> names;
        for (const LaneNode& leaf : leaves) names.push_back(std::to_string(leaf.first));
        const std::vector<std::string> own = terms_of(tree, leaves, names);
        BOOST_TEST_REQUIRE(own.size() == largest.size());
        for (std::size_t node = 0; node < own.size(); ++node) {
            nodes.push_back(largest[node]);
            terms.push_back(own[node]);
        }
    }
    const std::vector<std::string> all = terms_of(tree, nodes, terms);
    BOOST_TEST_REQUIRE(all.size() == 1u);
    return all.front();
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_number_of_replicas_adds_up_in_one_order) {
    BOOST_TEST(term_of(1, 1) == "0");
    BOOST_TEST(term_of(6, 1) == "(((0+1)+(2+3))+(4+5))");
    BOOST_TEST(term_of(7, 1) == "(((0+1)+(2+3))+((4+5)+6))");
    for (std::int64_t lanes = 1; lanes <= 60; ++lanes) {
        const std::string once = term_of(lanes, 1);
        for (std::int64_t replicas = 1; replicas <= lanes; ++replicas)
            if (lanes % replicas == 0) BOOST_TEST(term_of(lanes, replicas) == once, lanes << " lanes, " << replicas);
    }
}

BOOST_AUTO_TEST_CASE(a_replica_has_few_nodes) {
    for (const std::int64_t lanes : {12, 48, 60, 64, 720})
        for (std::int64_t replicas = 1; replicas <= lanes; ++replicas) {
            if (lanes % replicas != 0) continue;
            const LaneTree tree(lanes, replicas);
            const auto most =
                2 * static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(lanes / replicas)));
            for (std::int64_t replica = 0; replica < replicas; ++replica) {
                const std::vector<LaneNode> nodes = tree.largest(replica);
                BOOST_TEST(nodes.size() <= most, lanes << " lanes, " << replicas << " replicas");
                std::int64_t next = replica * tree.lanes_of_replica();
                for (const LaneNode& node : nodes) {
                    BOOST_TEST(node.first == next);
                    next = node.last;
                }
                BOOST_TEST(next == (replica + 1) * tree.lanes_of_replica());
            }
        }
    // Of nine, a replica between has most to keep.
    BOOST_TEST(LaneTree(9, 3).most_waiting(0) == 1u);
    BOOST_TEST(LaneTree(9, 3).most_waiting(1) == 2u);
    BOOST_TEST(LaneTree(9, 3).most_nodes() == 2);
    // Powers of two give one each; so do four lanes of twelve.
    BOOST_TEST(LaneTree(64, 8).largest(5).size() == 1u);
    for (std::int64_t replica = 0; replica < 3; ++replica) BOOST_TEST(LaneTree(12, 3).largest(replica).size() == 1u);
    BOOST_TEST((LaneTree(12, 4).largest(1) == std::vector<LaneNode>{{3, 4}, {4, 6}}));
}

BOOST_AUTO_TEST_CASE(sums_wait_in_buffers_that_are_planned) {
    GradientPlan plan;
    Bucket bucket;
    bucket.range = {0, 1024};
    const auto bytes = [&](std::int64_t lanes, const config::Grid& grid, std::int64_t replica) {
        bucket.cuts.clear();
        for (std::int64_t cut = 0; cut <= grid.replicas(); ++cut) bucket.cuts.push_back(1024 * cut / grid.replicas());
        plan.buckets = {bucket};
        Device device;
        device.imaginary = true;
        const LaneBuffers buffers(device, plan, LaneTree(lanes, grid.data), grid, replica, 1024, 1 << 20);
        return std::pair(buffers.waiting().size(), buffers.received().count());
    };
    const auto of = [](std::size_t waiting, std::int64_t received) { return std::pair(waiting, received); };
    BOOST_TEST((bytes(1, {1, 1, 1, 1}, 0) == of(0, 0)));
    BOOST_TEST((bytes(8, {1, 1, 1, 1}, 0) == of(3, 0)));
    BOOST_TEST((bytes(12, {1, 1, 1, 1}, 0) == of(3, 0)));
    BOOST_TEST((bytes(4, {1, 1, 4, 1}, 2) == of(0, 3 * 256)));
    BOOST_TEST((bytes(12, {1, 1, 4, 1}, 0) == of(1, 6 * 256)));  // two nodes of each other replica
    BOOST_TEST((bytes(12, {1, 2, 2, 1}, 3) == of(3, 6 * 256)));  // likewise, with two ranks a sequence
}
