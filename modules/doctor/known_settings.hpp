// Settings of nodes that are known to make training slow or to hang it. One table; docs/doctor.md has it too.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "doctor/node_facts.hpp"

namespace lockstep::doctor {

struct Circumstances {
    bool several_nodes = false, on_gpu = false;
};

struct KnownSetting {
    const char* id;
    const char* advice;
    const char* source;
    // What is wrong on this node, in words that are the same on nodes with the same trouble; "": nothing.
    std::string (*trouble)(const NodeFacts& node, const Circumstances& circumstances);
};
const std::vector<KnownSetting>& known_settings();

// Nodes with the same trouble share a finding.
std::vector<Finding> bad_settings(const std::vector<NodeFacts>& nodes, const Circumstances& circumstances);

}  // namespace lockstep::doctor
