#include "cluster/cuda/staged_communicator.hpp"

#include <algorithm>

#include "device/cuda/check.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{16} << 20;
}

StagedCommunicator::StagedCommunicator(const std::vector<int>& ranks, Use use, std::shared_ptr<CudaContext> context)
    : MpiCommunicator(ranks, use), context_(std::move(context)) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        check_cuda(cudaMallocHost(&buffers_[i], buffer_bytes), "pinned memory for communication");
        check_cuda(cudaEventCreateWithFlags(&arrived_[i], cudaEventDisableTiming), "an event of communication");
    }
}

StagedCommunicator::~StagedCommunicator() {
    static_cast<void>(cudaStreamSynchronize(context_->communication()));  // copies may still use the buffers
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (arrived_[i]) static_cast<void>(cudaEventDestroy(arrived_[i]));
        if (buffers_[i]) static_cast<void>(cudaFreeHost(buffers_[i]));
    }
}

void StagedCommunicator::all_reduce(Tensor values, Reduce operation) {
    begin_all_reduce(values, operation);
    finish_collectives();
}

void StagedCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    context_->order(context_->compute(), context_->communication());
    begun_.push_back({values, operation});
    if (sync_mode() == SyncMode::collective) finish_collectives();
}

void StagedCommunicator::begin_reduce_scatter(Tensor, const std::vector<std::int64_t>&) {
    throw fault_error("a reduce-scatter between GPUs is not written yet");
}

void StagedCommunicator::begin_all_gather(Tensor, const std::vector<std::int64_t>&) {
    throw fault_error("an all-gather between GPUs is not written yet");
}

std::unique_ptr<Transfer> StagedCommunicator::begin_send(Tensor, int, int) {
    throw fault_error("messages between GPUs are not written yet");
}

std::unique_ptr<Transfer> StagedCommunicator::begin_receive(Tensor, int, int) {
    throw fault_error("messages between GPUs are not written yet");
}

void StagedCommunicator::finish_collectives() {
    for (const Begun& one : begun_) {
        if (sync_mode() == SyncMode::collective) context_->synchronize();
        reduce(one.values, one.operation);
    }
    if (!begun_.empty()) context_->order(context_->communication(), context_->compute());
    begun_.clear();
    if (sync_mode() == SyncMode::collective) context_->synchronize();
}

void StagedCommunicator::reduce(Tensor values, Reduce operation) {
    const auto step = static_cast<std::int64_t>(buffer_bytes / type_bytes(values.type()));
    const std::int64_t count = values.count(), pieces = (count + step - 1) / step;
    const Tensor flat = values.reshaped({count});
    const cudaStream_t stream = context_->communication();
    const auto piece = [&](std::int64_t i) { return flat.slice(i * step, std::min(step, count - i * step)); };
    const auto fetch = [&](std::int64_t i) {
        const auto slot = static_cast<std::size_t>(i % 2);
        check_cuda(cudaMemcpyAsync(buffers_[slot], piece(i).data(), piece(i).bytes(), cudaMemcpyDeviceToHost, stream),
                   "a copy for communication");
        check_cuda(cudaEventRecord(arrived_[slot], stream), "an event of communication");
    };
    fetch(0);
    for (std::int64_t i = 0; i < pieces; ++i) {
        const auto slot = static_cast<std::size_t>(i % 2);
        check_cuda(cudaEventSynchronize(arrived_[slot]), "waiting for a copy for communication");
        // On this stream behind the copy back of the piece before the last, so that the other buffer is free then.
        if (i + 1 < pieces) fetch(i + 1);
        MpiCommunicator::all_reduce(Tensor(buffers_[slot], values.type(), piece(i).shape()), operation);
        check_cuda(cudaMemcpyAsync(piece(i).data(), buffers_[slot], piece(i).bytes(), cudaMemcpyHostToDevice, stream),
                   "a copy after communication");
    }
    // The buffers may be used again only when the last copies have left them.
    check_cuda(cudaStreamSynchronize(stream), "the end of a communication");
}

}  // namespace lockstep::cluster
