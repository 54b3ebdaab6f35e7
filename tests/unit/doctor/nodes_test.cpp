// What is read of a node, from recorded /proc and /sys, and what is said of it. Each known setting has a node that has
// the trouble and one that has not.
#define BOOST_TEST_MODULE nodes
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "doctor/differences.hpp"
#include "doctor/known_settings.hpp"
#include "doctor/node_facts.hpp"
#include "places.hpp"

using namespace lockstep::doctor;

namespace {

std::string root_of(const std::string& name) {
    return lockstep::tests::source_path("tests/unit/doctor/nodes/" + name);
}

NodeFacts node(const std::string& name, const Environment& environment = {}) {
    NodeFacts facts = read_node_facts(root_of(name), 0);
    facts.host = name;
    facts.environment = environment;
    return facts;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// The ids of all known settings that have trouble on this node.
std::vector<std::string> troubles(const NodeFacts& facts, const Circumstances& circumstances = {true, false}) {
    std::vector<std::string> ids;
    for (const Finding& finding : bad_settings({facts}, circumstances)) ids.push_back(finding.id);
    return ids;
}
bool has_trouble(const std::string& id, const NodeFacts& facts, const Circumstances& circumstances = {true, false}) {
    const auto ids = troubles(facts, circumstances);
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_node_with_infiniband) {
    const NodeFacts facts = node("infiniband");
    BOOST_TEST(facts.kernel == "5.14.21-150400.24.81-default");
    BOOST_TEST(facts.processor == "AMD EPYC 7763 64-Core Processor");
    BOOST_TEST(facts.cores == 2);
    BOOST_TEST(facts.memory_bytes == 527988308.0 * 1024);
    BOOST_TEST(facts.swap_used_bytes == 0);
    BOOST_TEST(facts.huge_pages == "madvise");
    BOOST_TEST((facts.governors == std::vector<std::string>{"performance"}));
    BOOST_TEST(facts.clock_share == 3500.0 / 3700);
    BOOST_TEST(facts.limit_share == 1);
    BOOST_TEST(facts.lockable_bytes == -1);
    BOOST_TEST((facts.rdma_devices == std::vector<std::string>{"infiniband/uverbs0"}));
    BOOST_TEST(facts.peer_memory);
    BOOST_TEST(!facts.dma_buffers);
    // The port that is down, the bridge and the interface over InfiniBand are left out.
    BOOST_TEST_REQUIRE(facts.ports.size() == 2u);
    BOOST_TEST(facts.ports[0].name == "mlx5_0");
    BOOST_TEST((facts.ports[0].fabric == Fabric::infiniband));
    BOOST_TEST(facts.ports[0].gigabits == 200);
    BOOST_TEST(facts.ports[1].name == "eth0");
    BOOST_TEST(facts.ports[1].gigabits == 25);
    BOOST_TEST(fastest(facts.ports)->name == "mlx5_0");
    BOOST_TEST(ports_text(facts.ports) == "1 x InfiniBand 200 Gb/s");
}

BOOST_AUTO_TEST_CASE(other_networks) {
    const NodeFacts slingshot = node("slingshot");
    BOOST_TEST(ports_text(slingshot.ports) == "1 x Slingshot 200 Gb/s");  // hsn0 is cxi0, and cxi1 is down
    BOOST_TEST((slingshot.rdma_devices == std::vector<std::string>{"cxi0"}));
    BOOST_TEST(ports_text(node("slingshot-400").ports) == "1 x Slingshot 400 Gb/s");
    BOOST_TEST(ports_text(node("ethernet").ports) == "Ethernet 10 Gb/s");
    BOOST_TEST(ports_text(node("roce").ports) == "1 x RoCE 100 Gb/s");
    BOOST_TEST(!has_fabric(node("ethernet").ports));
    BOOST_TEST(has_fabric(node("roce").ports));
    BOOST_TEST(node("roce").dma_buffers);
    BOOST_TEST(node("roce").processor == "implementer 0x41, part 0xd4f");
}

BOOST_AUTO_TEST_CASE(a_node_that_says_nothing) {
    const NodeFacts facts = node("no such folder");
    BOOST_TEST(facts.ports.empty());
    BOOST_TEST(!fastest(facts.ports));
    BOOST_TEST(ports_text(facts.ports) == "unknown");
    BOOST_TEST(facts.cores == 0);
    BOOST_TEST(facts.lockable_bytes == -1);
    BOOST_TEST(troubles(facts, {true, true}).empty());
}

BOOST_AUTO_TEST_CASE(facts_travel_whole) {
    NodeFacts facts = node("infiniband-neglected", {{"FI_PROVIDER", "tcp"}});
    facts.mpi = "MPICH";
    facts.program = "0.1";
    facts.nccl = {{"Socket"}, "", 3, 1};
    const NodeFacts again = facts_from_json(to_json(facts));
    BOOST_TEST(to_json(again) == to_json(facts));
    BOOST_TEST(again.host == "infiniband-neglected");
    BOOST_TEST(again.environment.at("FI_PROVIDER") == "tcp");
    BOOST_TEST(again.nccl.over_sockets());
    BOOST_TEST(again.throttled == 14);
    BOOST_TEST(!contains(to_json(facts), "\n"));
}

BOOST_AUTO_TEST_CASE(nothing_is_said_of_nodes_in_order) {
    for (const char* name : {"infiniband", "slingshot", "ethernet"})
        for (const bool several : {false, true}) BOOST_TEST(troubles(node(name), {several, false}).empty(), name);
    BOOST_TEST(troubles(node("infiniband"), {true, true}).empty());
}

BOOST_AUTO_TEST_CASE(each_trouble_of_a_neglected_node) {
    const NodeFacts bad = node("infiniband-neglected");
    const std::vector<std::string> wanted = {"mpi-sockets", "locked-memory", "huge-pages", "governor",
                                             "clock-limit", "low-clock",     "heat",       "swap"};
    // A limit explains a low clock; this one is lower still: 1.1 of 3.7 GHz, where 2.0 are allowed.
    BOOST_TEST(troubles(bad) == wanted, boost::test_tools::per_element());
    std::map<std::string, std::string> what;
    for (const Finding& finding : bad_settings({bad}, {true, false})) what[finding.id] = finding.what;
    BOOST_TEST(contains(what["mpi-sockets"], "MPI has opened no device of 1 x InfiniBand 200 Gb/s"));
    BOOST_TEST(contains(what["locked-memory"], "8.00 MiB"));
    BOOST_TEST(contains(what["governor"], "powersave"));
    BOOST_TEST(contains(what["clock-limit"], "54 %"));
    // One node alone sends no messages to others.
    BOOST_TEST(!has_trouble("mpi-sockets", bad, {false, false}));
}

BOOST_AUTO_TEST_CASE(heat_counts_only_while_it_is_measured) {
    BOOST_TEST(read_throttled(root_of("infiniband-neglected")) == 14);
    BOOST_TEST(read_node_facts(root_of("infiniband-neglected"), 14).throttled == 0);
    BOOST_TEST(!has_trouble("heat", read_node_facts(root_of("infiniband-neglected"), 14)));
    BOOST_TEST(has_trouble("heat", read_node_facts(root_of("infiniband-neglected"), 13)));
}

BOOST_AUTO_TEST_CASE(the_monitor_of_registered_memory_on_slingshot) {
    BOOST_TEST(has_trouble("cache-monitor", node("slingshot", {{"FI_MR_CACHE_MONITOR", "memhooks"}}), {true, true}));
    BOOST_TEST(!has_trouble("cache-monitor", node("slingshot", {{"FI_MR_CACHE_MONITOR", "memhooks"}}), {true, false}));
    BOOST_TEST(!has_trouble("cache-monitor", node("slingshot", {{"FI_MR_CACHE_MONITOR", "kdreg2"}}), {true, true}));
    BOOST_TEST(
        !has_trouble("cache-monitor", node("slingshot", {{"FI_MR_CACHE_MONITOR", "userfaultfd"}}), {true, true}));
    // The default counts where NCCL would use it.
    BOOST_TEST(has_trouble("cache-monitor", node("slingshot"), {true, true}));
    BOOST_TEST(!has_trouble("cache-monitor", node("slingshot"), {true, false}));
    BOOST_TEST(!has_trouble("cache-monitor", node("infiniband", {{"FI_MR_CACHE_MONITOR", "memhooks"}}), {true, true}));
}

BOOST_AUTO_TEST_CASE(nccl_over_sockets_beside_a_fabric) {
    const auto with = [](const std::string& name, const std::string& network) {
        NodeFacts facts = node(name);
        facts.nccl.networks = {network};
        return facts;
    };
    const Circumstances gpus{true, true};
    for (const char* name : {"infiniband", "slingshot", "roce"}) {
        BOOST_TEST(has_trouble("nccl-sockets", with(name, "Socket"), gpus), name);
        BOOST_TEST(!has_trouble("nccl-sockets", with(name, "IB"), gpus), name);
    }
    BOOST_TEST(!has_trouble("nccl-sockets", with("ethernet", "Socket"), gpus));
    BOOST_TEST(!has_trouble("nccl-sockets", with("infiniband", "Socket"), {false, true}));
    BOOST_TEST(!has_trouble("nccl-sockets", node("infiniband"), gpus));
}

BOOST_AUTO_TEST_CASE(direct_access_to_gpus) {
    const Circumstances gpus{true, true};
    BOOST_TEST(has_trouble("gpu-direct", node("infiniband-neglected"), gpus));
    BOOST_TEST(!has_trouble("gpu-direct", node("infiniband-neglected"), {true, false}));
    BOOST_TEST(!has_trouble("gpu-direct", node("infiniband"), gpus));  // nvidia_peermem
    BOOST_TEST(!has_trouble("gpu-direct", node("roce"), gpus));        // open kernel modules
    BOOST_TEST(!has_trouble("gpu-direct", node("ethernet"), gpus));
    // What NCCL says counts more.
    NodeFacts staged = node("infiniband");
    staged.nccl = {{"IB"}, "", 8, 0};
    BOOST_TEST(has_trouble("gpu-direct", staged, gpus));
    NodeFacts direct = node("infiniband-neglected");
    direct.nccl = {{"IB"}, "", 8, 8};
    BOOST_TEST(!has_trouble("gpu-direct", direct, gpus));
}

BOOST_AUTO_TEST_CASE(threads_that_spin) {
    for (const Environment& bad : {Environment{{"OMP_WAIT_POLICY", "ACTIVE"}},
                                   {{"GOMP_SPINCOUNT", "infinity"}},
                                   {{"KMP_BLOCKTIME", "infinite"}}})
        BOOST_TEST(has_trouble("spinning", node("ethernet", bad)));
    for (const Environment& good : {Environment{}, {{"OMP_WAIT_POLICY", "passive"}}, {{"GOMP_SPINCOUNT", "1000"}}})
        BOOST_TEST(!has_trouble("spinning", node("ethernet", good)));
}

BOOST_AUTO_TEST_CASE(nodes_with_one_trouble_share_a_finding) {
    NodeFacts a = node("ethernet"), b = a, c = a, d = a;
    a.host = "n1", b.host = "n2", c.host = "n3", d.host = "n4";
    for (NodeFacts* slow : {&a, &c}) slow->governors = {"powersave"};
    d.governors = {"performance", "schedutil"};
    const auto findings = bad_settings({a, b, c, d}, {true, false});
    BOOST_TEST_REQUIRE(findings.size() == 2u);
    BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n1", "n3"}));
    BOOST_TEST((findings[1].hosts == std::vector<std::string>{"n4"}));
    BOOST_TEST(contains(findings[1].what, "schedutil"));
    // What such a driver calls powersave is no low clock.
    a.governors = {"powersave of intel_pstate"};
    BOOST_TEST(!has_trouble("governor", a));
    a.governors = {"powersave of intel_pstate with power"};
    BOOST_TEST(has_trouble("governor", a));
}

BOOST_AUTO_TEST_CASE(nodes_that_differ) {
    std::vector<NodeFacts> nodes;
    for (int i = 0; i < 4; ++i) {
        nodes.push_back(node("infiniband"));
        nodes.back().host = "n" + std::to_string(i);
        nodes.back().memory_bytes += i * 1e6;  // firmware takes a little
    }
    BOOST_TEST(differences(nodes).empty());
    BOOST_TEST(differences({}).empty());
    const std::vector<std::pair<std::string, std::function<void(NodeFacts&)>>> changes = {
        {"kernel", [](NodeFacts& odd) { odd.kernel = "6.4.0"; }},
        {"mpi-version", [](NodeFacts& odd) { odd.mpi = "MPICH 3"; }},
        {"program", [](NodeFacts& odd) { odd.program = "0.0.9"; }},
        {"processor", [](NodeFacts& odd) { odd.processor = "AMD EPYC 9654"; }},
        {"cores", [](NodeFacts& odd) { odd.cores = 1; }},
        {"memory", [](NodeFacts& odd) { odd.memory_bytes /= 2; }},
        {"ports", [](NodeFacts& odd) { odd.ports[0].gigabits = 100; }}};
    for (const auto& [id, change] : changes) {
        std::vector<NodeFacts> changed = nodes;
        change(changed[2]);
        const auto findings = differences(changed);
        BOOST_TEST_REQUIRE(findings.size() == 1u, id);
        BOOST_TEST(findings[0].id == id);
        BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n2"}), id);
        BOOST_TEST(contains(findings[0].what, "on 3 nodes"));
        BOOST_TEST(contains(findings[0].what, "on n2"));
    }
}

BOOST_AUTO_TEST_CASE(nodes_that_were_expected) {
    std::vector<NodeFacts> nodes(2);
    nodes[0].host = "n1.site.org";
    nodes[1].host = "n5";
    BOOST_TEST(missing_nodes(nodes, {}).empty());
    BOOST_TEST(missing_nodes(nodes, {"n5", "n1"}).empty());
    const auto findings = missing_nodes(nodes, {"n1", "n2", "n3"});
    BOOST_TEST_REQUIRE(findings.size() == 2u);
    BOOST_TEST(findings[0].id == "no-rank");
    BOOST_TEST((findings[0].hosts == std::vector<std::string>{"n2", "n3"}));
    BOOST_TEST(findings[1].id == "not-listed");
    BOOST_TEST((findings[1].hosts == std::vector<std::string>{"n5"}));
}

BOOST_AUTO_TEST_CASE(every_known_setting_is_documented) {
    std::ifstream file(lockstep::tests::source_path("docs/doctor.md"));
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    BOOST_TEST(known_settings().size() == 12u);
    for (const KnownSetting& setting : known_settings()) {
        BOOST_TEST(contains(page, "| `" + std::string(setting.id) + "` |"), setting.id);
        BOOST_TEST(contains(page, setting.source), setting.id << " lacks its source");
        BOOST_TEST(std::string(setting.advice) != "");
    }
    for (const char* id : {"slow-node", "slow-link", "slow-memory", "below-port", "wrong-clock", "no-rank",
                           "not-listed", "kernel", "mpi-version", "program", "processor", "cores", "memory", "ports"})
        BOOST_TEST(contains(page, "`" + std::string(id) + "`"), id);
}
