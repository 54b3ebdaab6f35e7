// What one node says of itself: hardware, settings, software. Read from /proc and /sys below a root, so that tests can
// give it recorded ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctor/network_ports.hpp"
#include "doctor/transports.hpp"

namespace lockstep::doctor {

struct NodeFacts {
    std::string host;
    std::string kernel, mpi, program, processor;
    std::int64_t cores = 0;                        // that the system has online, hardware threads each for itself
    double memory_bytes = 0, swap_used_bytes = 0;  // 0: unknown, or none
    std::string huge_pages;                        // "always", "madvise", "never"; "": unknown
    // Of all cores, each once; none: unknown. "powersave of intel_pstate", "powersave of intel_pstate with power".
    std::vector<std::string> governors;
    double clock_share = 0;      // of its highest clock, the core that has most of it now; 0: unknown
    double limit_share = 1;      // likewise what the settings allow, of the core that is held down most
    std::int64_t throttled = 0;  // times that cores were slowed for their heat since an earlier reading
    double lockable_bytes = -1;  // -1: no limit, or unknown
    std::vector<NetworkPort> ports;
    std::vector<std::string> rdma_devices;  // files of fabrics that this process holds open: "infiniband/uverbs0"
    bool peer_memory = false, dma_buffers = false;  // ways of GPUDirect RDMA
    Environment environment;
    NcclTransports nccl;
};

// Times since the start of the system; for read_node_facts later.
std::int64_t read_throttled(const std::string& root);
// What the files below root + "/proc" and root + "/sys" say; nothing else of it is filled in.
NodeFacts read_node_facts(const std::string& root, std::int64_t throttled_before);

std::string to_json(const NodeFacts& facts);
NodeFacts facts_from_json(const std::string& text);  // of to_json

}  // namespace lockstep::doctor
