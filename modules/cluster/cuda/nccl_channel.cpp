#include "cluster/cuda/nccl_channel.hpp"

#if defined(LOCKSTEP_NCCL)
#include <algorithm>
#include <exception>
#include <utility>

namespace lockstep::cluster {

void NcclProcess::check_others() {
    for (const NcclChannel* channel : channels_) {
        if (!channel->nccl_) continue;
        ncclResult_t state = ncclSuccess;
        channel->check(ncclCommGetAsyncError(channel->nccl_, &state), "querying its state");
        if (state != ncclInProgress) channel->check(state, "a pending operation");
    }
}

void NcclProcess::abort_all() {
    // Grouped, so that all are told to abort before any abort is waited for: an abort waits for kernels of the others.
    static_cast<void>(ncclGroupStart());
    for (NcclChannel* channel : channels_)
        if (channel->nccl_) static_cast<void>(ncclCommAbort(std::exchange(channel->nccl_, nullptr)));
    static_cast<void>(ncclGroupEnd());
}

NcclChannel::NcclChannel(HostGroup& ranks, std::shared_ptr<NcclProcess> process, const CudaContext& context)
    : process_(std::move(process)), stream_(context.make_communication_stream()), rank_(ranks.rank()) {
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "creating its unique id");
    ranks.broadcast(&id, sizeof id, 0);
    check(ncclCommInitRank(&nccl_, ranks.size(), id, rank_), "its initialization");
    process_->channels_.push_back(this);
}

NcclChannel::~NcclChannel() {
    // While unwinding, some operations may never complete; an orderly destroy would wait for them.
    if (nccl_ && std::uncaught_exceptions() > 0)
        process_->abort_all();
    else if (nccl_)
        static_cast<void>(ncclCommDestroy(nccl_));
    std::erase(process_->channels_, this);
}

ncclComm_t NcclChannel::get() const {
    if (!nccl_) throw fault_error("NCCL was aborted on rank {} after an earlier error", rank_);
    return nccl_;
}

void NcclChannel::check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess) return;
    const Error error(ExitCode::fault,
                      fmt::format("NCCL failed on rank {} in {}: {} ({}); run with NCCL_DEBUG=WARN for the reason",
                                  rank_, what, ncclGetErrorString(result), ncclGetLastError(nccl_)),
                      result == ncclRemoteError ? Error::Kind::connection : Error::Kind::other);
    // Freeing memory during unwinding waits for kernels.
    process_->abort_all();
    throw error;
}

}  // namespace lockstep::cluster
#endif
