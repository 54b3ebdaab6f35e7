// Do the links, transports, settings and clocks of this launch's nodes do what they should?
#pragma once

#include <string>
#include <vector>

#include "cluster/session.hpp"
#include "doctor/clocks.hpp"
#include "doctor/finding.hpp"
#include "doctor/link_judgement.hpp"
#include "doctor/node_facts.hpp"
#include "layout/devices.hpp"

namespace lockstep::doctor {

struct Request {
    const cluster::Session& session;
    cluster::HostGroup& control;  // all ranks
    layout::Devices& devices;
    const NcclLog* nccl_log = nullptr;       // made before the devices were opened
    std::vector<std::string> expected = {};  // hosts that should have ranks; on rank 0
};

struct Examination {
    int ranks = 0;
    std::vector<NodeFacts> nodes;
    std::vector<RankSite> sites;  // by rank
    LinkJudgement links;
    std::vector<LinkRate> rates;
    std::vector<ClockOffset> clocks;  // by node
    std::vector<std::string> remarks;
    std::vector<Finding> findings;
    double seconds = 0;
};
// Collective; the result is whole on rank 0 only. Slow links are measured again, up to twice, before they are named.
// /proc and /sys are read below $LOCKSTEP_SYS_ROOT where that is set.
Examination examine(const Request& request);

}  // namespace lockstep::doctor
