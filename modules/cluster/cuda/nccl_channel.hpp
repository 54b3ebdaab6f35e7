// NCCL's communicators, each with the stream that its operations run on. A fault of one ends all of the process: the
// kernels of the others may wait for ranks that never come.
#pragma once

#if defined(LOCKSTEP_NCCL)
#include <nccl.h>

#include <memory>
#include <vector>

#include "cluster/host_group.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

class NcclChannel;

// The channels of this process.
class NcclProcess {
  public:
    void check_others();  // whether NCCL has heard of a fault on another rank
    void abort_all();

  private:
    friend class NcclChannel;
    std::vector<NcclChannel*> channels_;
};

class NcclChannel {
  public:
    // Collective over `ranks`, which it has the same ranks as.
    NcclChannel(HostGroup& ranks, std::shared_ptr<NcclProcess> process, const CudaContext& context);
    NcclChannel(const NcclChannel&) = delete;
    NcclChannel& operator=(const NcclChannel&) = delete;
    ~NcclChannel();
    ncclComm_t get() const;  // a fault where all were ended
    cudaStream_t stream() const { return stream_.get(); }
    // Throws what a call on this channel says, and ends all channels.
    void check(ncclResult_t result, const char* what) const;

  private:
    friend class NcclProcess;
    std::shared_ptr<NcclProcess> process_;
    CudaStream stream_;
    ncclComm_t nccl_ = nullptr;
    int rank_;
};

}  // namespace lockstep::cluster
#endif
