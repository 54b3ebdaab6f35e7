// Communicators for GPU tensors: NCCL if every rank has its own GPU and NCCL is usable, otherwise MPI through pinned
// host memory. Both use streams of their own, concurrent with the compute stream.
#pragma once

#include <memory>
#include <string>

#include "cluster/communicator.hpp"

namespace lockstep {
class CudaContext;
}

namespace lockstep::cluster {

// Collective over all ranks. `gpu` identifies this rank's GPU uniquely in the world. The carrier reads "NCCL 2.28.3",
// "MPI through pinned memory; ranks share a GPU", or "none" for one rank.
std::unique_ptr<CommunicatorSource> make_gpu_communicator_source(std::shared_ptr<CudaContext> context,
                                                                 const std::string& gpu);

}  // namespace lockstep::cluster
