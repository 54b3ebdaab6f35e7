#include "cluster/cuda/staged_transfer.hpp"

#include <algorithm>
#include <utility>

#include "device/cuda/check.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {

StagingPool::Buffer StagingPool::take(std::size_t bytes) {
    auto best = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each) {
        if (each->bytes < bytes || (best != free_.end() && best->bytes <= each->bytes)) continue;
        if (each->copied.done()) best = each;
    }
    Buffer taken;
    if (best != free_.end()) {
        taken = std::move(*best);
        free_.erase(best);
        return taken;
    }
    taken.bytes = std::max<std::size_t>(bytes, 1);
    taken.memory = PinnedMemory(taken.bytes);
    return taken;
}

StagedTransfer::StagedTransfer(std::shared_ptr<CudaContext> context, std::shared_ptr<StagingPool> pool,
                               StagingPool::Buffer buffer, std::unique_ptr<Transfer> carrier, Tensor destination)
    : context_(std::move(context)),
      pool_(std::move(pool)),
      buffer_(std::move(buffer)),
      carrier_(std::move(carrier)),
      destination_(destination) {}

void StagedTransfer::wait() {
    if (!carrier_) return;
    carrier_->wait();
    carrier_.reset();
    if (!destination_.empty() && destination_.count() > 0) {
        check_cuda(cudaMemcpyAsync(destination_.data(), buffer_.memory.data(), destination_.bytes(),
                                   cudaMemcpyHostToDevice, context_->compute()),
                   "copying an incoming message");
        buffer_.copied.record(context_->compute());
        if (sync_mode() == SyncMode::collective) buffer_.copied.wait();
    }
    pool_->give_back(std::move(buffer_));
}

}  // namespace lockstep::cluster
