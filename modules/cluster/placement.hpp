// Places this launch's ranks on their nodes: gathers each rank's permitted resources and makes its node's rank map.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "cluster/rank_map.hpp"
#include "cluster/session.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

struct Placement {
    std::shared_ptr<const Topology> topology;
    Hardware hardware;  // of this node
    RankMap map;        // of this node's ranks
    int local_rank = 0;
    bool threads_given = false;  // by OMP_NUM_THREADS, not the number of cores
    bool bound = false;
    const RankSeat& seat() const { return map.seats[static_cast<std::size_t>(local_rank)]; }
    RankSeat& seat() { return map.seats[static_cast<std::size_t>(local_rank)]; }
};

// Collective. `gpus`: PCI bus ids of the GPUs this rank sees and may compute on; none for a CPU.
Placement place_ranks(const Session& session, const std::vector<std::string>& gpus);

// The same for a process outside any launch.
Placement place_alone(const std::vector<std::string>& gpus);

// Sets the number of threads and binds, if asked to.
void take_seat(Placement& placement, bool on_gpu, bool bind_too);

// Collective; `host`: this rank's. Rank 0 logs the rank map of the first node and of each that differs from it, and any
// imbalance.
void log_placement(const Placement& placement, const std::string& host, HostGroup& world);

}  // namespace lockstep::cluster
