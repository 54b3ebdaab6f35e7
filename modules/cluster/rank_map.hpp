// Where a node's ranks run: each one's cores, GPU, memory and network cards. A pure function of the hardware and of
// each rank's permissions; docs/topology.md gives the order of decisions.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

// Per rank, in the order of local ranks.
struct RankRequest {
    CpuSet allowed;                 // by cgroups and the launcher; empty: everything
    std::vector<std::string> gpus;  // PCI bus ids it can compute on; none: CPU
};

struct RankSeat {
    std::string gpu;                   // PCI bus id; empty: the CPU
    std::string gpu_name;              // empty if unknown
    CpuSet cores;                      // one unit per core; all units of cores shared with other ranks
    CpuSet helpers;                    // where writer and monitoring threads run
    int threads = 1;                   // one per core; 1 on shared cores
    std::vector<int> numa_nodes;       // of the cores, ascending
    std::vector<std::string> network;  // the nearest cards
    bool shares_cores = false, shares_gpu = false;
    bool gpu_is_far = false;  // none of its cores is near the GPU
};

struct RankMap {
    std::vector<RankSeat> seats;
    std::vector<std::string> remarks;  // imbalances, one sentence each
};

RankMap map_ranks(const Hardware& hardware, const std::vector<RankRequest>& requests);

// "0, 2-4".
std::string list_text(const std::vector<int>& numbers);

}  // namespace lockstep::cluster
