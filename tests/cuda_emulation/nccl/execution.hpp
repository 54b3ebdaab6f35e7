// Runs what was called: a unit is the calls of one group on one communicator, or one call alone.
#pragma once

#include <memory>
#include <vector>

#include "cuda_emulation/nccl/ledger.hpp"

namespace lockstep::emulation::nccl {

// Announces the calls and queues them on the stream.
void issue(const std::vector<std::shared_ptr<Operation>>& unit, cudaStream_t stream);

// Runs what is queued of a communicator, with all that precedes it on its streams.
void drain(const ncclComm& comm);

}  // namespace lockstep::emulation::nccl
