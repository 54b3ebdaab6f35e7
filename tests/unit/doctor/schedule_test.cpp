// Who is measured with whom, and when; and how hosts are listed.
#define BOOST_TEST_MODULE schedule
#include "doctor/schedule.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "doctor/host_list.hpp"
#include "doctor/links.hpp"

using namespace lockstep::doctor;

namespace {

// Nobody is in a round twice, and no pair in two of them.
std::set<Pair> checked_pairs(const std::vector<Round>& rounds, int players) {
    std::set<Pair> pairs;
    for (const Round& round : rounds) {
        std::set<int> busy;
        for (const auto& [a, b] : round) {
            BOOST_TEST_REQUIRE((a >= 0 && a < b && b < players));
            BOOST_TEST(busy.insert(a).second);
            BOOST_TEST(busy.insert(b).second);
            const bool is_new = pairs.insert({a, b}).second;
            BOOST_TEST(is_new, a << " meets " << b << " twice");
        }
    }
    return pairs;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_pair_meets_once) {
    BOOST_TEST(every_pair(0).empty());
    BOOST_TEST(every_pair(1).empty());
    for (int players = 2; players <= most_for_all_pairs; ++players) {
        const std::vector<Round> rounds = enough_pairs(players);
        BOOST_TEST(checked_pairs(rounds, players).size() == static_cast<std::size_t>(players * (players - 1) / 2));
        // No fewer rounds are possible.
        BOOST_TEST(rounds.size() == static_cast<std::size_t>(players % 2 == 0 ? players - 1 : players));
    }
}

BOOST_AUTO_TEST_CASE(of_many_each_meets_sixteen_others) {
    for (const int players : {65, 66, 100, 127, 128, 1001, 4096}) {
        const std::vector<Round> rounds = enough_pairs(players);
        std::map<int, int> others;
        for (const auto& [a, b] : checked_pairs(rounds, players)) ++others[a], ++others[b];
        BOOST_TEST(others.size() == static_cast<std::size_t>(players));
        for (const auto& [player, count] : others) BOOST_TEST((count == 16 || (players % 2 == 1 && count == 17)));
        BOOST_TEST(rounds.size() <= 17u);
    }
}

BOOST_AUTO_TEST_CASE(some_pairs_in_rounds) {
    const std::vector<Pair> pairs = {{0, 1}, {0, 2}, {3, 4}, {1, 2}, {0, 4}};
    const std::vector<Round> rounds = in_rounds(pairs);
    const std::set<Pair> found = checked_pairs(rounds, 5);
    BOOST_TEST((found == std::set<Pair>(pairs.begin(), pairs.end())));
    BOOST_TEST(in_rounds({}).empty());
}

BOOST_AUTO_TEST_CASE(the_links_of_two_nodes_with_two_numa_nodes_each) {
    const std::vector<RankSite> ranks = {{0, 0}, {0, 0}, {0, 1}, {1, 4}, {1, 4}, {1, 5}};
    const LinkPlan plan = plan_links(ranks);
    BOOST_TEST(plan.all_pairs);
    const std::vector<std::vector<Link>> wanted = {{{0, 1, LinkKind::in_numa_node}, {3, 4, LinkKind::in_numa_node}},
                                                   {{0, 2, LinkKind::in_node}, {3, 5, LinkKind::in_node}},
                                                   {{0, 3, LinkKind::between_nodes}}};
    BOOST_TEST((plan.rounds == wanted));
    BOOST_TEST((speakers(ranks) == std::vector<int>{0, 3}));
    BOOST_TEST(plan_links({{0, 0}}).rounds.empty());
    BOOST_TEST(!plan_links(std::vector<RankSite>([] {
                    std::vector<RankSite> many;
                    for (int node = 0; node < 65; ++node) many.push_back({node, 0});
                    return many;
                }()))
                    .all_pairs);
}

BOOST_AUTO_TEST_CASE(lists_of_hosts) {
    BOOST_TEST(host_list({}) == "");
    BOOST_TEST(host_list({"login"}) == "login");
    BOOST_TEST(host_list({"n3"}) == "n3");
    BOOST_TEST(host_list({"n10", "n2", "n1", "n3", "n2", "n7"}) == "n[1-3,7,10]");
    BOOST_TEST(host_list({"n08", "n09", "n10", "n11"}) == "n[08-11]");
    BOOST_TEST(host_list({"n8", "n08"}) == "n8,n08");
    BOOST_TEST(host_list({"x1c2b0n1", "x1c2b0n0"}) == "x1c2b0n[0-1]");
    BOOST_TEST(host_list({"n1.site.org", "n2.site.org", "gpu1"}) == "gpu1,n[1-2].site.org");
    BOOST_TEST(host_list({"frontier00042", "frontier00043"}) == "frontier[00042-00043]");
    BOOST_TEST(host_list({"n99999999999999999999999"}) == "n99999999999999999999999");
}
