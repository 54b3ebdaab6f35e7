// Which links training uses, and when one that is slow is named.
#define BOOST_TEST_MODULE link_probe
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "doctor/link_probe.hpp"

using namespace lockstep;
using namespace lockstep::doctor;

namespace {

std::vector<int> nodes_of(int ranks, int on_each) {
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / on_each);
    return nodes;
}

std::set<Pair> pairs_of(const std::vector<std::vector<Link>>& rounds) {
    std::set<Pair> pairs;
    for (const auto& round : rounds) {
        std::set<int> busy;
        for (const Link& link : round) {
            BOOST_TEST(link.first < link.second);
            BOOST_TEST((link.kind == LinkKind::between_nodes));
            BOOST_TEST(busy.insert(link.first).second);
            BOOST_TEST(busy.insert(link.second).second);
            BOOST_TEST(pairs.emplace(link.first, link.second).second);
        }
    }
    return pairs;
}

config::Grid grid(std::int64_t tensor, std::int64_t context, std::int64_t data, std::int64_t pipeline) {
    config::Grid of;
    of.tensor = tensor;
    of.context = context;
    of.data = data;
    of.pipeline = pipeline;
    return of;
}

// Five nodes in a ring.
struct Ring {
    static constexpr int size = 5;
    SlowLinkRule rule{nodes_of(size, 1), {"n0", "n1", "n2", "n3", "n4"}};
    // `slow`: of the links that begin at these nodes, the rate is so much lower.
    std::vector<SlowLinkRule::Remark> judge(const std::set<int>& slow, double share = 0.3) {
        std::vector<LinkRate> rates;
        for (int node = 0; node < size; ++node) {
            const int next = (node + 1) % size;
            const Link link{std::min(node, next), std::max(node, next), LinkKind::between_nodes};
            rates.push_back({link, 0, slow.contains(node) ? share * 10e9 : 10e9, 0});
        }
        return rule.judge(rates);
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(links_are_those_of_neighbours_on_different_nodes) {
    BOOST_TEST(
        (pairs_of(training_links(grid(1, 1, 4, 1), nodes_of(4, 1))) == std::set<Pair>{{0, 1}, {1, 2}, {2, 3}, {0, 3}}));
    BOOST_TEST((pairs_of(training_links(grid(1, 1, 2, 1), nodes_of(2, 1))) == std::set<Pair>{{0, 1}}));
    // Two ranks a node: tensor within, data across, and of each two nodes one pair.
    BOOST_TEST((pairs_of(training_links(grid(2, 1, 3, 1), nodes_of(6, 2))) == std::set<Pair>{{0, 2}, {2, 4}, {0, 4}}));
    // No node has two links in a round, though each rank has but one.
    const std::vector<int> uneven = {0, 0, 1, 1, 2};
    const auto rounds = training_links(grid(1, 1, 5, 1), uneven);
    BOOST_TEST((pairs_of(rounds) == std::set<Pair>{{0, 4}, {1, 2}, {3, 4}}));
    for (const auto& round : rounds) BOOST_TEST(round.size() == 1u);
    // Stages across, replicas within.
    BOOST_TEST((pairs_of(training_links(grid(1, 1, 2, 2), nodes_of(4, 2))) == std::set<Pair>{{0, 2}}));
    BOOST_TEST(training_links(grid(2, 1, 2, 1), nodes_of(4, 4)).empty());
    BOOST_TEST(training_links(grid(1, 1, 1, 1), nodes_of(1, 1)).empty());
    // Two rounds are enough for a ring of even length, three for an odd one.
    BOOST_TEST(training_links(grid(1, 1, 8, 1), nodes_of(8, 1)).size() <= 3u);
    BOOST_TEST(training_links(grid(1, 1, 7, 1), nodes_of(7, 1)).size() <= 3u);
}

BOOST_AUTO_TEST_CASE(a_link_is_named_when_it_stays_slow) {
    Ring ring;
    BOOST_TEST(ring.judge({}).empty());
    BOOST_TEST(ring.judge({1}).empty());
    BOOST_TEST(ring.judge({1}).empty());
    BOOST_TEST(ring.judge({}).empty());  // something else disturbed it
    BOOST_TEST(ring.judge({1}).empty());
    BOOST_TEST(ring.judge({1}).empty());
    const auto named = ring.judge({1});
    BOOST_TEST_REQUIRE(named.size() == 1u);
    BOOST_TEST(named[0].slow);
    BOOST_TEST(named[0].sentence.starts_with("slow-link on n[1-2]: the link is slow: 30 % of the usual rate"),
               named[0].sentence);
    for (int i = 0; i < 5; ++i) BOOST_TEST(ring.judge({1}).empty());  // once
    BOOST_TEST(ring.judge({}).empty());
    BOOST_TEST(ring.judge({1}).empty());  // not yet mended
    BOOST_TEST(ring.judge({}).empty());
    BOOST_TEST(ring.judge({}).empty());
    const auto mended = ring.judge({});
    BOOST_TEST_REQUIRE(mended.size() == 1u);
    BOOST_TEST(!mended[0].slow);
    BOOST_TEST(mended[0].sentence == "the link between n1 and n2 is as fast as the others again");
    BOOST_TEST(ring.judge({}).empty());
}

BOOST_AUTO_TEST_CASE(a_node_is_named_instead_of_its_links) {
    Ring ring;
    for (int i = 0; i < 2; ++i) BOOST_TEST(ring.judge({1, 2}).empty());
    const auto named = ring.judge({1, 2});
    BOOST_TEST_REQUIRE(named.size() == 1u);
    BOOST_TEST(named[0].sentence.starts_with("slow-node on n2: 2 of its 2 links to other nodes are slow"),
               named[0].sentence);
    // One of its links recovers.
    for (int i = 0; i < 2; ++i) BOOST_TEST(ring.judge({1}).empty());
    const auto first = ring.judge({1});
    BOOST_TEST_REQUIRE(first.size() == 1u);
    BOOST_TEST(first[0].sentence == "the link between n2 and n3 is as fast as the others again");
    // A second link of a node whose first is named already.
    Ring later;
    for (int i = 0; i < 2; ++i) BOOST_TEST(later.judge({1}).empty());
    BOOST_TEST(later.judge({1}).size() == 1u);
    for (int i = 0; i < 2; ++i) BOOST_TEST(later.judge({1, 2}).empty());
    const auto both = later.judge({1, 2});
    BOOST_TEST_REQUIRE(both.size() == 1u);
    BOOST_TEST(both[0].sentence.starts_with("slow-node on n2: 2 of its 2 links"), both[0].sentence);
    // One that is slow in every probe is named, whatever another does.
    Ring mixed;
    BOOST_TEST(mixed.judge({1, 2}).empty());
    BOOST_TEST(mixed.judge({1}).empty());
    BOOST_TEST(mixed.judge({1, 2}).size() == 1u);
    // Above 60 % of the usual nothing is slow.
    Ring other;
    for (int i = 0; i < 5; ++i) BOOST_TEST(other.judge({1, 2}, 0.61).empty());
}
