// What is said of links that were measured, and of clocks.
#define BOOST_TEST_MODULE links
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>

#include "doctor/clocks.hpp"
#include "doctor/link_findings.hpp"
#include "doctor/link_judgement.hpp"

using namespace lockstep::doctor;

namespace {

constexpr double usual_rate = 20e9, usual_latency = 2e-6;

// One rank a node, every pair; `rate` of two nodes.
struct Cluster {
    explicit Cluster(int nodes, const std::function<double(int, int)>& rate = {}) {
        for (int node = 0; node < nodes; ++node) {
            ranks.push_back({node, 0});
            hosts.push_back("n" + std::to_string(node));
            ports.emplace_back("unknown");
        }
        for (int a = 0; a < nodes; ++a)
            for (int b = a + 1; b < nodes; ++b)
                rates.push_back({{a, b, LinkKind::between_nodes}, usual_latency, rate ? rate(a, b) : usual_rate, 0});
    }
    LinkJudgement judge() const { return judge_links(rates, ranks, ports); }
    LinkRate& of(int a, int b) {
        return *std::find_if(rates.begin(), rates.end(),
                             [&](const LinkRate& rate) { return rate.link.first == a && rate.link.second == b; });
    }
    std::vector<RankSite> ranks;
    std::vector<std::string> hosts, ports;
    std::vector<LinkRate> rates;
};

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::vector<int> nodes_of(const LinkJudgement& judgement) {
    std::vector<int> nodes;
    for (const SlowNode& node : judgement.nodes) nodes.push_back(node.node);
    std::sort(nodes.begin(), nodes.end());
    return nodes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(links_that_are_alike_are_not_named) {
    for (const int nodes : {1, 2, 3, 4, 9}) {
        // 61 % of the best is not slow.
        const LinkJudgement judgement =
            Cluster(nodes, [](int a, int b) { return (a + b) % 3 == 0 ? 0.61 * usual_rate : usual_rate; }).judge();
        BOOST_TEST(judgement.nodes.empty());
        BOOST_TEST(judgement.links.empty());
        BOOST_TEST(judgement.kinds.size() == (nodes > 1 ? 1u : 0u));
    }
}

BOOST_AUTO_TEST_CASE(one_slow_link_is_named_with_its_nodes) {
    for (const int nodes : {4, 5, 12}) {
        Cluster cluster(nodes);
        cluster.of(1, 3).rate = 0.5 * usual_rate;
        const LinkJudgement judgement = cluster.judge();
        BOOST_TEST(judgement.nodes.empty());
        BOOST_TEST_REQUIRE(judgement.links.size() == 1u);
        BOOST_TEST((judgement.links[0].link == Link{1, 3, LinkKind::between_nodes}));
        BOOST_TEST(judgement.kinds[0].lowest_rate == 0.5 * usual_rate);
        BOOST_TEST((judgement.kinds[0].lowest == Link{1, 3, LinkKind::between_nodes}));
        const auto findings = slow_links(judgement, cluster.ranks, cluster.hosts);
        BOOST_TEST_REQUIRE(findings.size() == 1u);
        BOOST_TEST(findings[0].id == "slow-link");
        BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n1", "n3"}));
        BOOST_TEST(contains(findings[0].what, "50 % of the usual rate, 10 instead of 20 GB/s"));
    }
}

// With three nodes two links of three are slow then, with four three of six.
BOOST_AUTO_TEST_CASE(a_slow_node_is_named_once_and_its_links_are_not) {
    for (int nodes = 3; nodes <= 20; ++nodes) {
        const Cluster cluster(nodes, [](int a, int b) { return a == 1 || b == 1 ? 0.1 * usual_rate : usual_rate; });
        const LinkJudgement judgement = cluster.judge();
        BOOST_TEST((nodes_of(judgement) == std::vector<int>{1}), nodes << " nodes");
        BOOST_TEST(judgement.links.empty());
        const auto findings = slow_links(judgement, cluster.ranks, cluster.hosts);
        BOOST_TEST_REQUIRE(findings.size() == 1u);
        BOOST_TEST(findings[0].id == "slow-node");
        BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n1"}));
    }
}

BOOST_AUTO_TEST_CASE(two_slow_nodes_and_a_slow_link_between_others) {
    for (const int nodes : {6, 8, 30}) {
        Cluster cluster(nodes, [](int a, int b) { return a == 0 || a == 2 || b == 2 ? 0.2 * usual_rate : usual_rate; });
        cluster.of(3, 4).rate = 0.3 * usual_rate;
        const LinkJudgement judgement = cluster.judge();
        BOOST_TEST((nodes_of(judgement) == std::vector<int>{0, 2}));
        BOOST_TEST_REQUIRE(judgement.links.size() == 1u);
        BOOST_TEST((judgement.links[0].link == Link{3, 4, LinkKind::between_nodes}));
    }
}

BOOST_AUTO_TEST_CASE(two_nodes_cannot_be_compared) {
    const LinkJudgement judgement = Cluster(2, [](int, int) { return 1.0; }).judge();
    BOOST_TEST(judgement.nodes.empty());
    BOOST_TEST(judgement.links.empty());
}

BOOST_AUTO_TEST_CASE(a_long_latency_counts_where_it_is_more_than_noise) {
    Cluster cluster(8);
    cluster.of(0, 5).latency = usual_latency + 4e-6;  // three times as long, and noise
    BOOST_TEST(cluster.judge().links.empty());
    cluster.of(0, 5).latency = usual_latency + 40e-6;
    const LinkJudgement judgement = cluster.judge();
    BOOST_TEST_REQUIRE(judgement.links.size() == 1u);
    BOOST_TEST((judgement.links[0].quantity == Quantity::latency));
    BOOST_TEST(contains(slow_links(judgement, cluster.ranks, cluster.hosts)[0].what,
                        "a message takes 42.0 us instead of 2.0 us"));
    BOOST_TEST(judgement.kinds[0].longest_latency == usual_latency + 40e-6);
}

// Other work on a node makes messages wait; that must not hide what a link carries.
BOOST_AUTO_TEST_CASE(a_low_rate_is_said_before_a_long_latency) {
    Cluster cluster(4, [](int, int b) { return b == 3 ? usual_rate / 100 : usual_rate; });
    for (LinkRate& rate : cluster.rates)
        if (rate.link.first != 0) rate.latency = 1000 * usual_latency;
    cluster.of(0, 1).latency = cluster.of(0, 2).latency = cluster.of(0, 3).latency = usual_latency;
    const LinkJudgement judgement = cluster.judge();
    BOOST_TEST_REQUIRE(judgement.nodes.size() >= 1u);
    const auto last = std::find_if(judgement.nodes.begin(), judgement.nodes.end(),
                                   [](const SlowNode& node) { return node.node == 3; });
    BOOST_TEST_REQUIRE((last != judgement.nodes.end()));
    BOOST_TEST((last->worst.quantity == Quantity::rate));
    BOOST_TEST(last->slow == 3);
}

BOOST_AUTO_TEST_CASE(links_between_gpus_are_judged_for_themselves) {
    Cluster cluster(9);
    for (LinkRate& rate : cluster.rates) rate.gpu_rate = 24e9;
    BOOST_TEST(cluster.judge().links.empty());
    cluster.of(2, 7).gpu_rate = 6e9;
    const LinkJudgement judgement = cluster.judge();
    BOOST_TEST_REQUIRE(judgement.links.size() == 1u);
    BOOST_TEST((judgement.links[0].quantity == Quantity::gpu_rate));
    BOOST_TEST(contains(slow_links(judgement, cluster.ranks, cluster.hosts)[0].what, "between GPUs"));
}

BOOST_AUTO_TEST_CASE(nodes_with_other_ports_are_kinds_of_their_own) {
    Cluster cluster(8, [](int a, int b) { return a < 6 && b < 6 ? usual_rate : usual_rate / 4; });
    BOOST_TEST(!cluster.judge().nodes.empty());
    for (std::size_t node = 0; node < 8; ++node) cluster.ports[node] = node < 6 ? "200 Gb/s" : "50 Gb/s";
    const LinkJudgement judgement = cluster.judge();
    BOOST_TEST(judgement.kinds.size() == 3u);
    BOOST_TEST(judgement.nodes.empty());
    BOOST_TEST(judgement.links.empty());
    BOOST_TEST(std::any_of(judgement.kinds.begin(), judgement.kinds.end(),
                           [](const LinkSummary& kind) { return kind.kind == "between nodes, 200 Gb/s to 50 Gb/s"; }));
}

BOOST_AUTO_TEST_CASE(a_slow_link_within_a_node) {
    std::vector<RankSite> ranks;
    std::vector<LinkRate> rates;
    for (int node = 0; node < 4; ++node) {
        ranks.push_back({node, 0});
        ranks.push_back({node, 1});
        rates.push_back({{2 * node, 2 * node + 1, LinkKind::in_node}, 4e-7, node == 2 ? 2e9 : 9e9, 0});
    }
    const LinkJudgement judgement = judge_links(rates, ranks, {"", "", "", ""});
    BOOST_TEST(judgement.nodes.empty());
    const auto findings = slow_links(judgement, ranks, {"a", "b", "c", "d"});
    BOOST_TEST_REQUIRE(findings.size() == 1u);
    BOOST_TEST((findings[0].hosts == std::vector<std::string>{"c"}));
    BOOST_TEST(contains(findings[0].what, "ranks 4 and 5"));
}

BOOST_AUTO_TEST_CASE(many_slow_links_are_counted) {
    Cluster cluster(40, [](int a, int b) { return (a + b) % 9 == 0 ? 0.3 * usual_rate : usual_rate; });
    const LinkJudgement judgement = cluster.judge();
    BOOST_TEST_REQUIRE(judgement.links.size() > 20u);
    const auto findings = slow_links(judgement, cluster.ranks, cluster.hosts);
    BOOST_TEST(findings.size() == 21u);
    BOOST_TEST(contains(findings.back().what, std::to_string(judgement.links.size() - 20) + " more links"));
}

BOOST_AUTO_TEST_CASE(links_against_the_speed_of_the_port) {
    const auto check = [](double rate, double gigabits_of_last) {
        Cluster cluster(3, [&](int, int) { return rate; });
        std::vector<NodeFacts> nodes(3);
        for (std::size_t i = 0; i < 3; ++i) {
            nodes[i].host = cluster.hosts[i];
            nodes[i].ports = {{"eth0", Fabric::ethernet, 25},
                              {"mlx5_0", Fabric::infiniband, i == 2 ? gigabits_of_last : 200}};
        }
        return below_ports(cluster.rates, cluster.judge(), cluster.ranks, nodes);
    };
    BOOST_TEST(check(15.1e9, 200).empty());  // 60 % of 25 GB/s are 15
    const auto findings = check(14.9e9, 200);
    BOOST_TEST_REQUIRE(findings.size() == 1u);
    BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n0", "n1", "n2"}));
    BOOST_TEST(contains(findings[0].what, "InfiniBand mlx5_0, 200 Gb/s, which is 25 GB/s"));
    BOOST_TEST(contains(findings[0].what, "the best has 14.9 GB/s"));
    // A link can be as fast as the slower one of its ends; each node has one that is.
    BOOST_TEST(check(10e9, 100).empty());
    // Without ports there is nothing to compare with.
    Cluster cluster(2);
    BOOST_TEST(below_ports(cluster.rates, cluster.judge(), cluster.ranks, {NodeFacts{}, NodeFacts{}}).empty());
}

BOOST_AUTO_TEST_CASE(clocks) {
    // Asked at 100 s; the answers took 4, 1 and 2 s and the other clock is 30 s ahead.
    const ClockOffset offset = clock_offset({{100, 133, 104}, {110, 140.5, 111}, {120, 151.5, 122}});
    BOOST_TEST(offset.ahead == 30);
    BOOST_TEST(offset.uncertainty == 0.5);
    const std::vector<std::string> hosts = {"n0", "n1", "n2", "n3", "n4"};
    const auto findings = wrong_clocks({{0, 0}, {0.9, 1e-5}, {-90, 1e-5}, {1.4, 0.5}, {1.6, 0.5}}, hosts);
    BOOST_TEST_REQUIRE(findings.size() == 2u);
    BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n2"}));
    BOOST_TEST(findings[0].what == "the wall clock is 1 min 30 s behind that of n0");
    BOOST_TEST((findings[1].hosts == std::vector<std::string>{"n4"}));
    BOOST_TEST(contains(findings[1].what, "1.6 s ahead of that of n0"));
}
