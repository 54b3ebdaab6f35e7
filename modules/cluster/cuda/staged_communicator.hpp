// Reductions of GPU tensors by MPI, piece by piece through two buffers of pinned host memory: one piece is on its way
// to or from the GPU while the other is reduced.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cluster/mpi_communicator.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

class StagedCommunicator final : public MpiCommunicator {
  public:
    StagedCommunicator(const std::vector<int>& ranks, Use use, std::shared_ptr<CudaContext> context);
    ~StagedCommunicator() override;
    using MpiCommunicator::all_reduce;
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;

  private:
    void reduce(Tensor values, Reduce operation);
    struct Begun {
        Tensor values;
        Reduce operation;
    };
    std::shared_ptr<CudaContext> context_;
    std::array<void*, 2> buffers_{};
    std::array<cudaEvent_t, 2> arrived_{};
    std::vector<Begun> begun_;
};

}  // namespace lockstep::cluster
