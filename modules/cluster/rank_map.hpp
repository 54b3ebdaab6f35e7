// Where the ranks of one node run: which cores, GPU, memory and network card each uses. A pure function of the hardware
// and of what each rank may use; docs/topology.md says in which order it decides.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace lockstep::cluster {

// Of one rank; requests are in the order of the ranks on the node.
struct RankRequest {
    CpuSet allowed;                 // what cgroups and the launcher leave it; empty: everything
    std::vector<std::string> gpus;  // PCI bus ids it can compute on; none: it computes on the CPU
};

struct RankSeat {
    std::string gpu;                   // PCI bus id; empty: the CPU
    std::string gpu_name;              // empty where the hardware does not know it
    CpuSet cores;                      // one unit of each core; all units of cores that are shared with other ranks
    CpuSet helpers;                    // where threads that write files and keep watch run
    int threads = 1;                   // one a core; 1 where cores are shared
    std::vector<int> numa_nodes;       // of the cores, ascending
    std::vector<std::string> network;  // the nearest cards
    bool shares_cores = false, shares_gpu = false;
    bool gpu_is_far = false;  // no core of its own is near the GPU
};

struct RankMap {
    std::vector<RankSeat> seats;
    std::vector<std::string> remarks;  // what is unbalanced, a sentence each
};

RankMap map_ranks(const Hardware& hardware, const std::vector<RankRequest>& requests);

// "0, 2-4".
std::string list_text(const std::vector<int>& numbers);

}  // namespace lockstep::cluster
