#include "doctor/differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "doctor/host_list.hpp"

namespace lockstep::doctor {
namespace {

struct Property {
    const char* id;
    const char* name;
    const char* advice;
    std::string (*value)(const NodeFacts& node, double usual_memory_bytes);
};

// Firmware keeps a little for itself, and not everywhere the same.
std::string memory_text(const NodeFacts& node, double usual_bytes) {
    constexpr double alike = 0.05;
    const bool usual = std::abs(node.memory_bytes - usual_bytes) <= alike * usual_bytes;
    return human_bytes(usual ? usual_bytes : node.memory_bytes);
}

double usual_memory(const std::vector<NodeFacts>& nodes) {
    std::vector<double> bytes;
    for (const NodeFacts& node : nodes) bytes.push_back(node.memory_bytes);
    const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
    std::nth_element(bytes.begin(), middle, bytes.end());
    return *middle;
}

const std::vector<Property>& properties() {
    constexpr const char* one_kind =
        "ask the scheduler for one kind of node (a constraint or a partition): a step takes as long as its slowest rank";
    static const std::vector<Property> list = {
        {"kernel", "kernel", "tell the site; until then leave the odd nodes out",
         [](const NodeFacts& node, double) { return node.kernel; }},
        {"mpi-version", "MPI library", "load the same modules on all nodes, and use the launcher of that MPI",
         [](const NodeFacts& node, double) { return node.mpi; }},
        {"program", "program", "launch the same executable on all nodes, from a shared folder",
         [](const NodeFacts& node, double) { return node.program; }},
        {"processor", "processor", one_kind, [](const NodeFacts& node, double) { return node.processor; }},
        {"cores", "number of cores", one_kind,
         [](const NodeFacts& node, double) { return std::to_string(node.cores); }},
        {"memory", "memory", one_kind, memory_text},
        {"ports", "network", "a port that is down or slower than it should be: leave the odd nodes out, tell the site",
         [](const NodeFacts& node, double) { return ports_text(node.ports); }},
    };
    return list;
}

std::string without_domain(const std::string& host) {
    return host.substr(0, host.find('.'));
}

}  // namespace

std::vector<Finding> differences(const std::vector<NodeFacts>& nodes) {
    if (nodes.empty()) return {};
    const double memory = usual_memory(nodes);
    std::vector<Finding> findings;
    for (const Property& property : properties()) {
        std::map<std::string, std::vector<std::string>> hosts;
        for (const NodeFacts& node : nodes) hosts[property.value(node, memory)].push_back(node.host);
        if (hosts.size() < 2) continue;
        const auto most = std::max_element(
            hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
        std::string what = fmt::format("the {} differs between nodes: {} on {} node{}", property.name,
                                       most->first.empty() ? "unknown" : most->first, most->second.size(),
                                       plural(most->second.size()));
        std::vector<std::string> odd;
        for (auto other = hosts.begin(); other != hosts.end(); ++other) {
            if (other == most) continue;
            what +=
                fmt::format(", {} on {}", other->first.empty() ? "unknown" : other->first, host_list(other->second));
            odd.insert(odd.end(), other->second.begin(), other->second.end());
        }
        findings.push_back({property.id, what, odd, property.advice, ""});
    }
    return findings;
}

std::vector<Finding> missing_nodes(const std::vector<NodeFacts>& nodes, const std::vector<std::string>& expected) {
    if (expected.empty()) return {};
    std::set<std::string> present, wanted;
    for (const NodeFacts& node : nodes) present.insert(without_domain(node.host));
    for (const std::string& host : expected) wanted.insert(without_domain(host));
    std::vector<std::string> absent, unexpected;
    std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(), std::back_inserter(absent));
    std::set_difference(present.begin(), present.end(), wanted.begin(), wanted.end(), std::back_inserter(unexpected));
    std::vector<Finding> findings;
    if (!absent.empty())
        findings.push_back({"no-rank", "the node list names these hosts, but no rank runs there", absent,
                            "check the launcher's options for nodes and ranks per node", ""});
    if (!unexpected.empty())
        findings.push_back({"not-listed", "ranks run on these hosts, but the node list does not name them", unexpected,
                            "check the launcher's options for nodes and ranks per node", ""});
    return findings;
}

}  // namespace lockstep::doctor
