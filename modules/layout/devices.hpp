// What a rank computes on, and what carries tensors between ranks: decided once, the same on all ranks.
#pragma once

#include <memory>
#include <string>

#include "cluster/communicator.hpp"
#include "cluster/placement.hpp"
#include "cluster/session.hpp"
#include "config/words.hpp"
#include "device/gpu.hpp"
#include "kernels/backend.hpp"

namespace lockstep::layout {

struct Devices {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<cluster::CommunicatorSource> communicators;  // of groups of ranks, for tensors of the backend
    std::unique_ptr<cluster::Communicator> communicator;         // of all ranks, likewise
    std::string name;                                            // "AMD EPYC 9654, avx2", "NVIDIA H200"
    std::string processor;                                       // "AMD EPYC 9654, avx2", also beside a GPU
    std::string carrier;                                         // "MPI", "NCCL 2.28.3", …
    bool on_gpu() const { return backend->device().kind == DeviceKind::cuda; }
    cluster::Placement placement;       // of the ranks of this node; not for a process alone
    std::string why_no_gpu;             // where the choice was any and a CPU was taken
    std::uint64_t free_memory() const;  // of the GPU, bytes
    std::shared_ptr<CudaContext> gpu;
};

// Collective. cuda where a rank has no GPU: a usage error says what is missing. any: GPUs where every rank has one.
// Each rank takes the seat that the map of its node gives it: its GPU, its number of threads and, with `bind`, its
// cores and memory.
Devices open_devices(config::DeviceChoice choice, const cluster::Session& session, bool bind);

// For a process that runs alone, without other ranks.
Devices open_device_alone(config::DeviceChoice choice);

}  // namespace lockstep::layout
