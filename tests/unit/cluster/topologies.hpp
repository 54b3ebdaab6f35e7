// The nodes in topologies/: made up, after the kinds of nodes that there are.
#pragma once

#include <string>

#include "cluster/hardware.hpp"

namespace lockstep::test {

inline std::string topology_path(const std::string& name) {
    return std::string(LOCKSTEP_SOURCE_DIR) + "/tests/unit/cluster/topologies/" + name + ".xml";
}

inline cluster::Hardware hardware_of(const std::string& name) {
    return cluster::read_hardware(cluster::Topology::from_xml(topology_path(name)));
}

}  // namespace lockstep::test
