// Communicators for tensors on GPUs: NCCL where every rank has a GPU of its own and NCCL can be used, otherwise MPI
// through pinned host memory. Both work on streams of their own, beside the context's compute stream.
#pragma once

#include <memory>
#include <string>

#include "cluster/communicator.hpp"

namespace lockstep {
class CudaContext;
}

namespace lockstep::cluster {

// Collective over all ranks. `gpu` names this rank's GPU so that no two GPUs of the world have the same name. The
// carrier reads "NCCL 2.28.3", "MPI through pinned memory, since ranks share a GPU", "none" for one rank.
std::unique_ptr<CommunicatorSource> make_gpu_communicator_source(std::shared_ptr<CudaContext> context,
                                                                 const std::string& gpu);

}  // namespace lockstep::cluster
