// A message of a GPU tensor by MPI, through a buffer of pinned host memory.
#pragma once

#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "device/cuda/context.hpp"

namespace lockstep::cluster {

// Pinned memory costs much to allocate: buffers are kept for messages to come.
class StagingPool {
  public:
    struct Buffer {
        PinnedMemory memory;
        std::size_t bytes = 0;
        CudaEvent copied;  // when the copy between it and the GPU has ended
    };
    Buffer take(std::size_t bytes);
    void give_back(Buffer buffer) { free_.push_back(std::move(buffer)); }

  private:
    std::vector<Buffer> free_;
};

class StagedTransfer final : public Transfer {
  public:
    // `carrier` moves the buffer; `destination` is where it goes on the GPU, nothing for a message that is sent.
    StagedTransfer(std::shared_ptr<CudaContext> context, std::shared_ptr<StagingPool> pool, StagingPool::Buffer buffer,
                   std::unique_ptr<Transfer> carrier, Tensor destination);
    void wait() override;

  private:
    std::shared_ptr<CudaContext> context_;
    std::shared_ptr<StagingPool> pool_;
    StagingPool::Buffer buffer_;
    std::unique_ptr<Transfer> carrier_;  // null once it was waited for
    Tensor destination_;
};

}  // namespace lockstep::cluster
