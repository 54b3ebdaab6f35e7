#include "cluster/cuda/staged_communicator.hpp"

#include <algorithm>
#include <utility>

#include "cluster/mpi_segments.hpp"
#include "cluster/parts.hpp"
#include "device/cuda/check.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {
std::size_t buffer_bytes() {
    return std::min(std::size_t{16} << 20, largest_segment());
}
}  // namespace

StagedCommunicator::StagedCommunicator(std::shared_ptr<MpiGroup> group, Use use, std::shared_ptr<CudaContext> context)
    : group_(std::move(group)),
      use_(use),
      host_(group_, use),
      context_(std::move(context)),
      pool_(std::make_shared<StagingPool>()) {
    for (Buffer& buffer : buffers_) buffer.memory = PinnedMemory(buffer_bytes());
}

StagedCommunicator::~StagedCommunicator() {
    static_cast<void>(cudaStreamSynchronize(context_->communication()));  // copies may still use the buffers
}

void StagedCommunicator::all_reduce(Tensor values, Reduce operation) {
    begin_all_reduce(values, operation);
    finish_collectives();
}

void StagedCommunicator::begin(std::function<void()> collective) {
    context_->order(context_->compute(), context_->communication());
    begun_.push_back(std::move(collective));
    if (sync_mode() == SyncMode::collective) finish_collectives();
}

void StagedCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    begin([=, this] { pass(values, {true, true}, [&](Tensor segment) { host_.all_reduce(segment, operation); }); });
}

std::vector<std::int64_t> StagedCommunicator::all_to(int owner, std::int64_t count) const {
    std::vector<std::int64_t> cuts(static_cast<std::size_t>(size()) + 1);
    std::fill(cuts.begin() + owner + 1, cuts.end(), count);
    return cuts;
}

void StagedCommunicator::begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) {
    begin([this, parts = parts_of(values, cuts, size())] {
        for (int owner = 0; owner < size(); ++owner)
            pass(parts[static_cast<std::size_t>(owner)], {true, owner == rank()}, [&](Tensor segment) {
                host_.begin_reduce_scatter(segment, all_to(owner, segment.count()));
                host_.finish_collectives();
            });
    });
}

void StagedCommunicator::begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) {
    begin([this, parts = parts_of(values, cuts, size())] {
        for (int owner = 0; owner < size(); ++owner)
            pass(parts[static_cast<std::size_t>(owner)], {owner == rank(), owner != rank()}, [&](Tensor segment) {
                host_.begin_all_gather(segment, all_to(owner, segment.count()));
                host_.finish_collectives();
            });
    });
}

void StagedCommunicator::finish_collectives() {
    if (begun_.empty()) return;
    for (const auto& collective : std::exchange(begun_, {})) {
        if (sync_mode() == SyncMode::collective) context_->synchronize();
        collective();
    }
    if (sync_mode() == SyncMode::collective) context_->synchronize();
}

void StagedCommunicator::pass(Tensor values, Copies copies, const std::function<void(Tensor segment)>& by_mpi) {
    const auto step = static_cast<std::int64_t>(buffer_bytes() / type_bytes(values.type()));
    const std::int64_t count = values.count(), segments = (count + step - 1) / step;
    const Tensor flat = values.reshaped({count});
    const cudaStream_t stream = context_->communication();
    const auto segment = [&](std::int64_t i) { return flat.slice(i * step, std::min(step, count - i * step)); };
    const auto buffer = [&](std::int64_t i) -> Buffer& { return buffers_[static_cast<std::size_t>(i % 2)]; };
    const auto fetch = [&](std::int64_t i) {
        if (!copies.from_gpu || i >= segments) return;
        check_cuda(cudaMemcpyAsync(buffer(i).memory.data(), segment(i).data(), segment(i).bytes(),
                                   cudaMemcpyDeviceToHost, stream),
                   "copying for communication");
        buffer(i).ready.record(stream);
    };
    fetch(0);
    for (std::int64_t i = 0; i < segments; ++i) {
        buffer(i).ready.wait();
        // Ordered behind the copy-back of the segment before last, which frees the other buffer.
        fetch(i + 1);
        by_mpi(Tensor(buffer(i).memory.data(), values.type(), segment(i).shape()));
        if (!copies.to_gpu) continue;
        check_cuda(cudaMemcpyAsync(segment(i).data(), buffer(i).memory.data(), segment(i).bytes(),
                                   cudaMemcpyHostToDevice, stream),
                   "copying after communication");
        buffer(i).ready.record(stream);
    }
    // The buffers and the backend must wait for the last copies.
    wait_for(stream, "waiting for communication");
}

std::unique_ptr<Transfer> StagedCommunicator::begin_send(Tensor values, int to, int tag) {
    group_->check_transfer(use_, to, tag);
    StagingPool::Buffer buffer = pool_->take(values.bytes());
    const Tensor staged(buffer.memory.data(), values.type(), {values.count()});
    if (values.count() > 0) {
        check_cuda(
            cudaMemcpyAsync(staged.data(), values.data(), values.bytes(), cudaMemcpyDeviceToHost, context_->compute()),
            "copying an outgoing message");
        buffer.copied.record(context_->compute());
        buffer.copied.wait();
    }
    auto carrier = host_.begin_send(staged, to, tag);
    return std::make_unique<StagedTransfer>(context_, pool_, std::move(buffer), std::move(carrier), Tensor());
}

std::unique_ptr<Transfer> StagedCommunicator::begin_receive(Tensor values, int from, int tag) {
    group_->check_transfer(use_, from, tag);
    StagingPool::Buffer buffer = pool_->take(values.bytes());
    const Tensor staged(buffer.memory.data(), values.type(), {values.count()});
    auto carrier = host_.begin_receive(staged, from, tag);
    return std::make_unique<StagedTransfer>(context_, pool_, std::move(buffer), std::move(carrier), values);
}

}  // namespace lockstep::cluster
