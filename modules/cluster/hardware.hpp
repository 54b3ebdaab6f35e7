// A node's hardware as plain data: the input of the rank map, independent of hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cpu_set.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

struct Core {
    CpuSet units;        // its hardware threads
    int package = 0;     // numbered from 0 in hwloc's order
    int numa_node = -1;  // OS index, possibly with gaps; -1: unknown
    int kind = -1;       // of a hybrid processor, slowest first; -1: all cores are alike, or unknown
};

struct NumaNode {
    int number = 0;           // OS index
    CpuSet units;             // of its cores; empty: memory without cores, such as a device's; never used
    std::uint64_t bytes = 0;  // 0: unknown
};

enum class GpuVendor { nvidia, amd, intel };
const char* vendor_name(GpuVendor vendor);

struct GpuDevice {
    std::string bus;  // PCI, "0000:1b:00.0"
    std::string name;
    GpuVendor vendor = GpuVendor::nvidia;
    CpuSet near;            // units of the package, NUMA node or cache it is attached to; empty: unknown
    std::vector<int> path;  // PCI bridges from the root down, for distance to network cards
};

struct NetworkCard {
    std::string bus;
    std::string name;     // of its OS devices: "mlx5_0/ib0"
    bool fabric = false;  // InfiniBand, Slingshot and the like; false: plain Ethernet
    CpuSet near;
    std::vector<int> path;
};

struct Hardware {
    std::vector<Core> cores;           // in hwloc's logical order: neighbours are close
    std::vector<NumaNode> numa_nodes;  // by number
    std::vector<GpuDevice> gpus;       // by bus id; without a management controller's graphics
    std::vector<NetworkCard> network;  // by bus id; only PCI cards with an interface
    int packages = 1;
};

Hardware read_hardware(const Topology& topology);

}  // namespace lockstep::cluster
