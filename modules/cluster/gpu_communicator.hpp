// The Communicator for tensors on GPUs: NCCL where every rank has a GPU of its own and NCCL can be used, otherwise MPI
// through pinned host memory. Reductions run on the context's communication stream, beside its compute stream.
#pragma once

#include <memory>
#include <string>

#include "cluster/communicator.hpp"

namespace lockstep {
class CudaContext;
}

namespace lockstep::cluster {

struct GpuCommunicator {
    std::unique_ptr<Communicator> communicator;
    std::string carrier;  // "NCCL 2.28.3", "MPI through pinned memory, since two ranks share a GPU"
};

// Collective over all ranks. `gpu` names this rank's GPU so that no two GPUs of the world have the same name.
GpuCommunicator make_gpu_communicator(std::shared_ptr<CudaContext> context, const std::string& gpu);

}  // namespace lockstep::cluster
