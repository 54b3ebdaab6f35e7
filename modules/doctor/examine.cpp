#include "doctor/examine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>

#include "base/clock.hpp"
#include "base/version.hpp"
#include "cluster/agree.hpp"
#include "doctor/differences.hpp"
#include "doctor/host_list.hpp"
#include "doctor/known_settings.hpp"
#include "doctor/link_findings.hpp"
#include "doctor/measure_links.hpp"

namespace lockstep::doctor {
namespace {

constexpr int most_measurements = 3;
// A core's clock is read after so long a time of work, seconds.
constexpr double busy_seconds = 20e-3;

std::string system_root() {
    const char* root = std::getenv("LOCKSTEP_SYS_ROOT");
    return root ? root : "";
}

std::vector<RankSite> find_sites(const Request& request) {
    const std::vector<int>& numa_nodes = request.devices.placement.seat().numa_nodes;
    const RankSite own{request.session.place().node, numa_nodes.empty() ? 0 : numa_nodes.front()};
    const std::vector<char> bytes = request.control.all_gather_bytes(&own, sizeof own);
    std::vector<RankSite> sites(bytes.size() / sizeof own);
    std::memcpy(sites.data(), bytes.data(), bytes.size());
    return sites;
}

void keep_busy() {
    const double end = seconds_now() + busy_seconds;
    while (seconds_now() < end) continue;
}

NodeFacts own_facts(const Request& request, std::int64_t throttled_before) {
    keep_busy();
    NodeFacts facts = read_node_facts(system_root(), throttled_before);
    facts.host = request.session.place().host;
    facts.environment = own_environment();
    facts.mpi = mpi_transport(cluster::mpi_library(), facts.environment);
    facts.program = fmt::format("{}, commit {}, {}", version(), commit(), compiler());
    if (request.nccl_log) facts.nccl = request.nccl_log->read();
    return facts;
}

// By node: what its speaker says.
std::vector<NodeFacts> gather_facts(const Request& request, bool speaks, std::int64_t throttled_before) {
    std::string own;
    cluster::together(request.control, [&] {
        if (speaks) own = to_json(own_facts(request, throttled_before)) + '\n';
    });
    const std::vector<char> bytes = request.control.all_gather_bytes(own.data(), own.size());
    std::istringstream texts(std::string(bytes.begin(), bytes.end()));
    std::vector<NodeFacts> nodes;
    for (std::string text; std::getline(texts, text);) nodes.push_back(facts_from_json(text));
    return nodes;
}

std::vector<std::string> port_texts(const std::vector<NodeFacts>& nodes) {
    std::vector<std::string> texts;
    for (const NodeFacts& node : nodes) texts.push_back(ports_text(node.ports));
    return texts;
}

// All ranks judge the same numbers, so they agree without a word what is to be measured again.
void measure_again(Examination& of, const Carriers& carriers) {
    const std::vector<std::string> ports = port_texts(of.nodes);
    for (int times = 1;; ++times) {
        of.links = judge_links(of.rates, of.sites, ports);
        std::set<int> slow_nodes;
        for (const SlowNode& node : of.links.nodes) slow_nodes.insert(node.node);
        std::vector<Pair> pairs;
        std::map<Pair, Link> links;
        const auto suspect = [&](const Link& link) {
            if (links.emplace(Pair{link.first, link.second}, link).second) pairs.emplace_back(link.first, link.second);
        };
        for (const SlowLink& slow : of.links.links) suspect(slow.link);
        for (const LinkRate& rate : of.rates)
            for (const int rank : {rate.link.first, rate.link.second})
                if (rate.link.kind == LinkKind::between_nodes &&
                    slow_nodes.contains(of.sites[static_cast<std::size_t>(rank)].node))
                    suspect(rate.link);
        if (pairs.empty() || times == most_measurements) return;
        std::vector<std::vector<Link>> rounds;
        for (const Round& round : in_rounds(pairs)) {
            rounds.emplace_back();
            for (const Pair& pair : round) rounds.back().push_back(links.at(pair));
        }
        for (const LinkRate& again : measure_links(rounds, carriers))
            for (LinkRate& rate : of.rates)
                if (rate.link == again.link) rate = better(rate, again);
    }
}

void add(std::vector<Finding>& to, std::vector<Finding> findings) {
    to.insert(to.end(), std::make_move_iterator(findings.begin()), std::make_move_iterator(findings.end()));
}

std::vector<std::string> hosts_of(const std::vector<NodeFacts>& nodes) {
    std::vector<std::string> hosts;
    for (const NodeFacts& node : nodes) hosts.push_back(node.host);
    return hosts;
}

std::vector<std::string> transports_text(const std::vector<NodeFacts>& nodes) {
    std::map<std::string, std::vector<std::string>> of_hosts;
    for (const NodeFacts& node : nodes) {
        const NetworkPort* port = fastest(node.ports);
        const std::string nccl = nccl_transport(node.nccl);
        of_hosts[fmt::format("{}{}; {}", node.mpi, nccl.empty() ? "" : "; NCCL: " + nccl,
                             port ? fmt::format("fastest port: {} {}, {:g} Gb/s", fabric_name(port->fabric), port->name,
                                                port->gigabits)
                                  : "no port reports its speed")]
            .push_back(node.host);
    }
    std::vector<std::string> lines;
    for (const auto& [text, hosts] : of_hosts) lines.push_back(fmt::format("{}: {}", host_list(hosts), text));
    return lines;
}

void conclude(Examination& of, const Request& request, bool compares) {
    const bool several = of.nodes.size() > 1;
    of.remarks = transports_text(of.nodes);
    if (several && std::any_of(of.nodes.begin(), of.nodes.end(), [](const auto& node) { return !node.ports.empty(); }))
        of.remarks.emplace_back(
            "rates are compared with the fastest port that is up; which one training uses is not known");
    if (of.nodes.size() > static_cast<std::size_t>(most_for_all_pairs))
        of.remarks.push_back(fmt::format(
            "a sample of the pairs of nodes was measured: each node with at least {} others", fewest_others));
    if (!compares && of.ranks > 1) of.remarks.emplace_back("ranks share cores, so links are measured but not compared");
    for (const LinkSummary& kind : of.links.kinds)
        if (compares && kind.links == 1)
            of.remarks.push_back(fmt::format("one link {}: no other to compare it with", kind.kind));
    add(of.findings, missing_nodes(of.nodes, request.expected));
    if (compares) add(of.findings, slow_links(of.links, of.sites, hosts_of(of.nodes)));
    if (compares) add(of.findings, below_ports(of.rates, of.links, of.sites, of.nodes));
    add(of.findings, bad_settings(of.nodes, {several, request.devices.on_gpu()}));
    add(of.findings, differences(of.nodes));
    add(of.findings, wrong_clocks(of.clocks, hosts_of(of.nodes)));
}

}  // namespace

Examination examine(const Request& request) {
    const double start = seconds_now();
    const int rank = request.session.rank();
    Examination of;
    of.ranks = request.session.size();
    of.sites = find_sites(request);
    const std::vector<int> speaking = speakers(of.sites);
    const bool speaks = std::find(speaking.begin(), speaking.end(), rank) != speaking.end();
    const std::int64_t throttled_before = speaks ? read_throttled(system_root()) : 0;
    const bool compares = request.control.all_maximum(request.devices.placement.seat().shares_cores ? 1 : 0) == 0;

    std::unique_ptr<cluster::Communicator> gpus;
    Carriers carriers{request.control};
    if (request.devices.on_gpu() && of.ranks > 1) {
        std::vector<int> all(static_cast<std::size_t>(of.ranks));
        std::iota(all.begin(), all.end(), 0);
        gpus = request.devices.communicators->make(all, cluster::Use::transfers, "doctor");
        carriers.gpus = gpus.get();
        carriers.backend = request.devices.backend.get();
    }
    of.rates = measure_links(plan_links(of.sites).rounds, carriers);
    of.clocks = measure_clocks(request.control, speaking);
    of.nodes = gather_facts(request, speaks, throttled_before);
    if (compares)
        measure_again(of, carriers);
    else
        of.links = judge_links(of.rates, of.sites, port_texts(of.nodes));
    if (rank == 0) conclude(of, request, compares);
    of.seconds = seconds_now() - start;
    return of;
}

}  // namespace lockstep::doctor
