// Collectives and messages of GPU tensors over MPI, staged through pinned host memory. Collectives are pipelined
// through two buffers: one segment is copied from or to the GPU while MPI works on the other. Messages have their own
// buffers.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/cuda/staged_transfer.hpp"
#include "cluster/mpi_communicator.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

class StagedCommunicator final : public Communicator {
  public:
    StagedCommunicator(std::shared_ptr<MpiGroup> group, Use use, std::shared_ptr<CudaContext> context);
    ~StagedCommunicator() override;
    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;

  private:
    struct Buffer {
        PinnedMemory memory;
        CudaEvent ready;  // the copies between it and the GPU are done
    };
    // What is copied from the GPU before MPI has a segment, and to the GPU afterwards.
    struct Copies {
        bool from_gpu, to_gpu;
    };
    void begin(std::function<void()> collective);
    void pass(Tensor values, Copies copies, const std::function<void(Tensor segment)>& by_mpi);
    std::vector<std::int64_t> all_to(int owner, std::int64_t count) const;  // cuts with a single non-empty part

    std::shared_ptr<MpiGroup> group_;
    Use use_;
    MpiCommunicator host_;  // works on the staged copies
    std::shared_ptr<CudaContext> context_;
    std::array<Buffer, 2> buffers_;
    std::shared_ptr<StagingPool> pool_;
    std::vector<std::function<void()>> begun_;
};

}  // namespace lockstep::cluster
