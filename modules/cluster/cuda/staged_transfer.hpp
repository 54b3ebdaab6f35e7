// A point-to-point message of a GPU tensor over MPI, through a pinned host buffer.
#pragma once

#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

// Pinned memory is expensive to allocate, so buffers are reused.
class StagingPool {
  public:
    struct Buffer {
        PinnedMemory memory;
        std::size_t bytes = 0;
        CudaEvent copied;  // the copy between it and the GPU is done
    };
    Buffer take(std::size_t bytes);
    void give_back(Buffer buffer) { free_.push_back(std::move(buffer)); }

  private:
    std::vector<Buffer> free_;
};

class StagedTransfer final : public Transfer {
  public:
    // `carrier` transfers the buffer; `destination` is the GPU tensor to receive, empty for a send.
    StagedTransfer(std::shared_ptr<CudaContext> context, std::shared_ptr<StagingPool> pool, StagingPool::Buffer buffer,
                   std::unique_ptr<Transfer> carrier, Tensor destination);
    void wait() override;

  private:
    std::shared_ptr<CudaContext> context_;
    std::shared_ptr<StagingPool> pool_;
    StagingPool::Buffer buffer_;
    std::unique_ptr<Transfer> carrier_;  // null after wait()
    Tensor destination_;
};

}  // namespace lockstep::cluster
