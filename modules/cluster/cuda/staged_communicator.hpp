// Collectives and messages of GPU tensors by MPI, through pinned host memory. Collectives go piece by piece through two
// buffers: one piece is on its way to or from the GPU while the other is MPI's. A message has a buffer of its own.
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
        CudaEvent ready;  // when the copies between it and the GPU have ended
    };
    // What this rank copies from the GPU before MPI has a piece, and to the GPU after it.
    struct Copies {
        bool from_gpu, to_gpu;
    };
    void begin(std::function<void()> collective);
    void pass(Tensor values, Copies copies, const std::function<void(Tensor piece)>& by_mpi);
    std::vector<std::int64_t> all_to(int owner, std::int64_t count) const;  // cuts with one part that is not empty

    std::shared_ptr<MpiGroup> group_;
    Use use_;
    MpiCommunicator host_;  // carries what was copied to the host
    std::shared_ptr<CudaContext> context_;
    std::array<Buffer, 2> buffers_;
    std::shared_ptr<StagingPool> pool_;
    std::vector<std::function<void()>> begun_;
};

}  // namespace lockstep::cluster
