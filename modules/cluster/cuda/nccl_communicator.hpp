// Reductions of GPU tensors by NCCL, one communicator, issued from one thread: every rank issues in the same order.
#pragma once

#if defined(LOCKSTEP_NCCL)
#include <nccl.h>

#include <memory>
#include <vector>

#include "cluster/mpi_communicator.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

class NcclCommunicator final : public MpiCommunicator {
  public:
    NcclCommunicator(const std::vector<int>& ranks, Use use, std::shared_ptr<CudaContext> context);  // collective
    ~NcclCommunicator() override;
    using MpiCommunicator::all_reduce;
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;

  private:
    void check(ncclResult_t result, const char* what);
    void check_others();  // whether NCCL has heard of a fault on another rank
    std::shared_ptr<CudaContext> context_;
    ncclComm_t nccl_ = nullptr;
    bool any_begun_ = false;
};

}  // namespace lockstep::cluster
#endif
