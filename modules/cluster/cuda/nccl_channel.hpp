// NCCL communicators, each with the stream its operations run on. After an error on one, all of the process are
// aborted: kernels of the others may wait for ranks that never come. They share no resources (ncclCommSplit with
// splitShare would save memory), since those that share must not run at once, and these do: a send beside a receive,
// gradients beside activations.
#pragma once

#if defined(LOCKSTEP_NCCL)
#include <nccl.h>

#include <memory>
#include <vector>

#include "cluster/host_group.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

class NcclChannel;

class NcclProcess {
  public:
    void check_others();  // throws if NCCL reports an asynchronous error
    void abort_all();

  private:
    friend class NcclChannel;
    std::vector<NcclChannel*> channels_;
};

class NcclChannel {
  public:
    // Collective over the ranks of `group`.
    NcclChannel(HostGroup& ranks, std::shared_ptr<NcclProcess> process, const CudaContext& context);
    NcclChannel(const NcclChannel&) = delete;
    NcclChannel& operator=(const NcclChannel&) = delete;
    ~NcclChannel();
    ncclComm_t get() const;  // throws once aborted
    cudaStream_t stream() const { return stream_.get(); }
    // Throws the error of a call on this channel and aborts all channels.
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
