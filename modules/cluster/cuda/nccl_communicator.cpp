#include "cluster/cuda/nccl_communicator.hpp"

#if defined(LOCKSTEP_NCCL)
#include <exception>
#include <utility>

#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

ncclDataType_t nccl_type(Type type) {
    switch (type) {
        case Type::fp32:
            return ncclFloat32;
        case Type::fp64:
            return ncclFloat64;
        case Type::int32:
            return ncclInt32;
        default:
            throw fault_error("a tensor of {} cannot be reduced between ranks", type_name(type));
    }
}

ncclRedOp_t nccl_operation(Reduce operation) {
    switch (operation) {
        case Reduce::sum:
            return ncclSum;
        case Reduce::maximum:
            return ncclMax;
        case Reduce::minimum:
            return ncclMin;
    }
    throw fault_error("unknown reduction");
}

}  // namespace

NcclCommunicator::NcclCommunicator(const std::vector<int>& ranks, Use use, std::shared_ptr<CudaContext> context)
    : MpiCommunicator(ranks, use), context_(std::move(context)) {
    ncclUniqueId id{};
    if (rank() == 0) check(ncclGetUniqueId(&id), "its unique id");
    broadcast(&id, sizeof id, 0);
    check(ncclCommInitRank(&nccl_, size(), id, rank()), "its start");
    context_->set_while_waiting([this] { check_others(); });
}

NcclCommunicator::~NcclCommunicator() {
    context_->set_while_waiting({});
    if (!nccl_) return;
    // While ranks unwind from an error some operations may never end; an orderly end would wait for them.
    static_cast<void>(std::uncaught_exceptions() > 0 ? ncclCommAbort(nccl_) : ncclCommDestroy(nccl_));
}

void NcclCommunicator::check(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) return;
    const Error error = fault_error("NCCL failed on rank {} in {}: {} ({}); run with NCCL_DEBUG=WARN to see its reason",
                                    rank(), what, ncclGetErrorString(result), ncclGetLastError(nccl_));
    // Its kernels may wait for ranks that never come, and freeing memory, as who unwinds does, waits for kernels.
    if (nccl_) static_cast<void>(ncclCommAbort(std::exchange(nccl_, nullptr)));
    throw error;
}

void NcclCommunicator::check_others() {
    if (!nccl_) return;
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(nccl_, &state), "asking for its state");
    if (state != ncclInProgress) check(state, "an operation under way");
}

void NcclCommunicator::all_reduce(Tensor values, Reduce operation) {
    begin_all_reduce(values, operation);
    finish_collectives();
}

void NcclCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    const bool waiting = sync_mode() == SyncMode::collective;
    if (waiting) {
        context_->synchronize();
        meet("NCCL all-reduce", values.bytes());
    }
    context_->order(context_->compute(), context_->communication());
    check(ncclAllReduce(values.data(), values.data(), static_cast<std::size_t>(values.count()),
                        nccl_type(values.type()), nccl_operation(operation), nccl_, context_->communication()),
          "an all-reduce");
    any_begun_ = true;
    if (waiting) {
        context_->synchronize();
        check_others();
        meet("end of the NCCL all-reduce", values.bytes());
    }
}

void NcclCommunicator::begin_reduce_scatter(Tensor, const std::vector<std::int64_t>&) {
    throw fault_error("a reduce-scatter between GPUs is not written yet");
}

void NcclCommunicator::begin_all_gather(Tensor, const std::vector<std::int64_t>&) {
    throw fault_error("an all-gather between GPUs is not written yet");
}

std::unique_ptr<Transfer> NcclCommunicator::begin_send(Tensor, int, int) {
    throw fault_error("messages between GPUs are not written yet");
}

std::unique_ptr<Transfer> NcclCommunicator::begin_receive(Tensor, int, int) {
    throw fault_error("messages between GPUs are not written yet");
}

void NcclCommunicator::finish_collectives() {
    if (!any_begun_) return;
    any_begun_ = false;
    check_others();
    context_->order(context_->communication(), context_->compute());
}

}  // namespace lockstep::cluster
#endif
