// The nodes in topologies/: made up, after the kinds of nodes that there are.
#pragma once

#include <string>

#include "cluster/hardware.hpp"
#include "places.hpp"

namespace lockstep::test {

inline std::string topology_path(const std::string& name) {
    return tests::source_path("tests/unit/cluster/topologies/" + name + ".xml");
}

inline cluster::Hardware hardware_of(const std::string& name) {
    return cluster::read_hardware(cluster::Topology::from_xml(topology_path(name)));
}

}  // namespace lockstep::test
