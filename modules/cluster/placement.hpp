// The ranks of this launch on their nodes: asks every rank what it may use and makes the map of its node.
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
    bool threads_given = false;  // by OMP_NUM_THREADS, not by the number of cores
    bool bound = false;
    const RankSeat& seat() const { return map.seats[static_cast<std::size_t>(local_rank)]; }
    RankSeat& seat() { return map.seats[static_cast<std::size_t>(local_rank)]; }
};

// Collective. `gpus`: PCI bus ids of the GPUs that this rank can see and is to compute on one of; none for a CPU.
Placement place_ranks(const Session& session, const std::vector<std::string>& gpus);

// The same for a process that is no rank of anything.
Placement place_alone(const std::vector<std::string>& gpus);

// Sets the number of threads and, if wanted, binds.
void take_seat(Placement& placement, bool on_gpu, bool bind_too);

// Collective: rank 0 logs the map of the first node and of each that differs from it, and what is unbalanced.
void say_placement(const Placement& placement, const Session& session, HostGroup& world);

}  // namespace lockstep::cluster
