// In what the nodes of one run differ that should be alike.
#pragma once

#include <vector>

#include "doctor/finding.hpp"
#include "doctor/node_facts.hpp"

namespace lockstep::doctor {

// Kernel, MPI, program, processor, its cores, memory, network ports. A finding names the nodes that are not as most
// are.
std::vector<Finding> differences(const std::vector<NodeFacts>& nodes);

// Hosts that a list of nodes names and on which no rank runs, and the other way round. Domains do not matter.
std::vector<Finding> missing_nodes(const std::vector<NodeFacts>& nodes, const std::vector<std::string>& expected);

}  // namespace lockstep::doctor
