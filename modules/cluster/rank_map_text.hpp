// Prints a rank map: a table, a drawing of the node, and log lines.
#pragma once

#include <string>
#include <vector>

#include "base/table.hpp"
#include "cluster/rank_map.hpp"

namespace lockstep::cluster {

Table rank_table(const RankMap& map);

// Packages, NUMA nodes, cores, GPUs and network cards, and the ranks on them.
std::string draw_node(const Hardware& hardware, const RankMap& map);

// "cores 0-7 (NUMA node 0), 8 threads, GPU 0000:1b:00.0, network mlx5_0".
std::string seat_text(const RankSeat& seat);

// "2 packages, 4 NUMA nodes, 32 cores with 2 hardware threads each, 4 GPUs".
std::string hardware_text(const Hardware& hardware);

// "a has 4 GPUs; b and 2 more nodes have 3 GPUs": the kinds of nodes, at most four; "" where all are alike. `hardware`
// as hardware_text() has it.
struct NodeHardware {
    std::string host, hardware;
};
std::string hardware_differences(const std::vector<NodeHardware>& nodes);

}  // namespace lockstep::cluster
