// A node's hardware as plain numbers: what the map of ranks is made of, without hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cpu_set.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

struct Core {
    CpuSet units;        // its hardware threads
    int package = 0;     // counted from 0 in hwloc's order
    int numa_node = -1;  // the operating system's number, with gaps on some machines; -1: not known
    int kind = -1;       // of a hybrid processor, from the slowest up; -1: all cores are alike, as far as is known
};

struct NumaNode {
    int number = 0;           // the operating system's
    CpuSet units;             // of its cores; none: memory of a device, say, named but never used
    std::uint64_t bytes = 0;  // 0: not known
};

enum class GpuVendor { nvidia, amd, intel };
const char* vendor_name(GpuVendor vendor);

struct GpuDevice {
    std::string bus;  // PCI, "0000:1b:00.0"
    std::string name;
    GpuVendor vendor = GpuVendor::nvidia;
    CpuSet near;            // of the package, NUMA node or cache it hangs on; empty: not known
    std::vector<int> path;  // of PCI bridges from the root down, for nearness to network cards
};

struct NetworkCard {
    std::string bus;
    std::string name;     // of the system's interfaces: "mlx5_0/ib0"
    bool fabric = false;  // InfiniBand, Slingshot and the like, not plain Ethernet
    CpuSet near;
    std::vector<int> path;
};

struct Hardware {
    std::vector<Core> cores;           // in hwloc's logical order: neighbours are near
    std::vector<NumaNode> numa_nodes;  // by number
    std::vector<GpuDevice> gpus;       // by bus id; no graphics of a server's management controller
    std::vector<NetworkCard> network;  // by bus id; only PCI cards with an interface
    int packages = 1;
};

Hardware read_hardware(const Topology& topology);

}  // namespace lockstep::cluster
