// How far the nodes' wall clocks are from rank 0's.
#pragma once

#include <vector>

#include "cluster/host_group.hpp"
#include "doctor/finding.hpp"

namespace lockstep::doctor {

// One question to another clock: asked and answered by the own clock, what the other said in between. Seconds.
struct ClockReading {
    double asked = 0, said = 0, answered = 0;
};
// The other clock lies `ahead` by this, give or take half the shortest round trip.
struct ClockOffset {
    double ahead = 0, uncertainty = 0;
};
// Of the reading with the shortest round trip; the way there counts as long as the way back.
ClockOffset clock_offset(const std::vector<ClockReading>& readings);

// Collective. By node, on rank 0; elsewhere empty. `speakers`: the lowest rank of each node.
std::vector<ClockOffset> measure_clocks(cluster::HostGroup& control, const std::vector<int>& speakers);

constexpr double most_ahead_seconds = 1;
std::vector<Finding> wrong_clocks(const std::vector<ClockOffset>& offsets, const std::vector<std::string>& hosts);

}  // namespace lockstep::doctor
