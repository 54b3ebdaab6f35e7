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
        channel->check(ncclCommGetAsyncError(channel->nccl_, &state), "asking for its state");
        if (state != ncclInProgress) channel->check(state, "an operation under way");
    }
}

void NcclProcess::abort_all() {
    // In one group, as all are told to end before the end of any is waited for: an end waits for kernels of the others.
    static_cast<void>(ncclGroupStart());
    for (NcclChannel* channel : channels_)
        if (channel->nccl_) static_cast<void>(ncclCommAbort(std::exchange(channel->nccl_, nullptr)));
    static_cast<void>(ncclGroupEnd());
}

NcclChannel::NcclChannel(HostGroup& ranks, std::shared_ptr<NcclProcess> process, const CudaContext& context)
    : process_(std::move(process)), stream_(context.make_communication_stream()), rank_(ranks.rank()) {
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "its unique id");
    ranks.broadcast(&id, sizeof id, 0);
    check(ncclCommInitRank(&nccl_, ranks.size(), id, rank_), "its start");
    process_->channels_.push_back(this);
}

NcclChannel::~NcclChannel() {
    // While ranks unwind from an error some operations may never end; an orderly end would wait for them.
    if (nccl_ && std::uncaught_exceptions() > 0)
        process_->abort_all();
    else if (nccl_)
        static_cast<void>(ncclCommDestroy(nccl_));
    std::erase(process_->channels_, this);
}

ncclComm_t NcclChannel::get() const {
    if (!nccl_) throw fault_error("NCCL was ended on rank {} by an earlier fault", rank_);
    return nccl_;
}

void NcclChannel::check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess) return;
    const Error error = fault_error("NCCL failed on rank {} in {}: {} ({}); run with NCCL_DEBUG=WARN to see its reason",
                                    rank_, what, ncclGetErrorString(result), ncclGetLastError(nccl_));
    // Freeing memory, as who unwinds does, waits for kernels.
    process_->abort_all();
    throw error;
}

}  // namespace lockstep::cluster
#endif
