#include "cluster/cuda/nccl_communicator.hpp"

#if defined(LOCKSTEP_NCCL)
#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "cluster/mpi_host_group.hpp"
#include "cluster/parts.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

ncclDataType_t nccl_type(Type type) {
    switch (type) {
        case Type::fp32:
            return ncclFloat32;
        case Type::bf16:
            return ncclBfloat16;
        case Type::fp16:
            return ncclFloat16;
        case Type::int32:
            return ncclInt32;
        case Type::fp64:
            return ncclFloat64;
    }
    throw fault_error("unsupported data type of a reduction");
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
    throw fault_error("unsupported reduction");
}

std::size_t place(int from, int to, int ranks) {
    const int steps = (to - from + ranks) % ranks;  // up the ring
    const bool up = 2 * steps == ranks ? to > from : 2 * steps < ranks;
    const int sender = from == ranks - 1 && from % 2 == 0 ? 2 : from % 2;
    return static_cast<std::size_t>((up ? 0 : 3) + sender);
}

// Parts of one size, of which the last rank may have more: one collective does the equal ones, and another what is
// left.
struct EvenParts {
    std::int64_t count = 0;  // of each
    Tensor rest;             // empty: nothing
};
std::optional<EvenParts> even(const std::vector<Tensor>& parts) {
    const std::int64_t count = parts[0].count(), last = parts.back().count();
    const bool same = std::all_of(parts.begin(), parts.end() - 1, [&](Tensor part) { return part.count() == count; });
    if (!same || last < count || count == 0) return std::nullopt;
    return EvenParts{count, last > count ? parts.back().slice(count, last - count) : Tensor()};
}

// What `issue` calls, in one group. An error closes the group before it is thrown, since error handling opens groups of
// its own.
template <class Function>
ncclResult_t in_a_group(Function&& issue) {
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = issue();
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

// `call` for each non-empty part.
template <class Function>
ncclResult_t for_each_part(const std::vector<Tensor>& parts, Function&& call) {
    return in_a_group([&] {
        ncclResult_t result = ncclSuccess;
        for (std::size_t owner = 0; owner < parts.size() && result == ncclSuccess; ++owner)
            if (parts[owner].count() > 0) result = call(parts[owner], static_cast<int>(owner));
        return result;
    });
}

class NcclTransfer final : public Transfer {
  public:
    NcclTransfer(std::shared_ptr<CudaContext> context, std::shared_ptr<NcclProcess> process)
        : context_(std::move(context)), process_(std::move(process)) {}
    ~NcclTransfer() override { LOCKSTEP_ASSERT(waited_ || std::uncaught_exceptions() > 0); }
    void wait() override {
        if (waited_) return;
        waited_ = true;
        process_->check_others();
        check_cuda(cudaStreamWaitEvent(context_->compute(), ended.get(), 0), "ordering a message");
        if (sync_mode() == SyncMode::collective) ended.wait();
    }

    CudaEvent ended;

  private:
    std::shared_ptr<CudaContext> context_;
    std::shared_ptr<NcclProcess> process_;
    bool waited_ = false;
};

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<MpiGroup> group, Use use, std::shared_ptr<CudaContext> context,
                                   std::shared_ptr<NcclProcess> process)
    : group_(std::move(group)), use_(use), context_(std::move(context)), process_(std::move(process)) {
    if (use != Use::transfers) {
        open_collectives();
        return;
    }
    MpiHostGroup ranks(group_);
    for (int from = 0; from < size(); ++from)
        for (int to = 0; to < size(); ++to)
            if (auto& made = transfers_[place(from, to, size())]; from != to && !made)
                made = std::make_unique<NcclChannel>(ranks, process_, *context_);
}

void NcclCommunicator::open_collectives() {
    MpiHostGroup ranks(group_);
    if (!collectives_) collectives_ = std::make_unique<NcclChannel>(ranks, process_, *context_);
}

void NcclCommunicator::synchronize() {
    context_->synchronize();
    wait_for(collectives_->stream(), "waiting for the collectives issued so far");
    process_->check_others();
}

void NcclCommunicator::begin(FlightKind kind, Tensor values,
                             const std::function<void(ncclComm_t, cudaStream_t)>& issue) {
    open_collectives();
    const bool waiting = sync_mode() == SyncMode::collective;
    const std::string name = flight_kind_name(kind);
    static_cast<void>(group_->note(kind, values.bytes(), -1, true));
    if (waiting) {
        synchronize();
        group_->meet(("NCCL " + name).c_str(), values.bytes());
    }
    context_->order(context_->compute(), collectives_->stream());
    issue(collectives_->get(), collectives_->stream());
    any_begun_ = true;
    if (waiting) {
        synchronize();
        group_->meet(("end of the NCCL " + name).c_str(), values.bytes());
    }
}

void NcclCommunicator::all_reduce(Tensor values, Reduce operation) {
    begin_all_reduce(values, operation);
    finish_collectives();
}

void NcclCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    begin(FlightKind::all_reduce, values, [&](ncclComm_t nccl, cudaStream_t stream) {
        collectives_->check(ncclAllReduce(values.data(), values.data(), static_cast<std::size_t>(values.count()),
                                          nccl_type(values.type()), nccl_operation(operation), nccl, stream),
                            "an all-reduce");
    });
}

void NcclCommunicator::begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size());
    const ncclDataType_t type = nccl_type(values.type());
    begin(FlightKind::reduce_scatter, values, [&](ncclComm_t nccl, cudaStream_t stream) {
        const auto check = [&](ncclResult_t result) { collectives_->check(result, "a reduce-scatter"); };
        const auto to_one = [&](Tensor part, int owner) {
            return ncclReduce(part.data(), part.data(), static_cast<std::size_t>(part.count()), type, ncclSum, owner,
                              nccl, stream);
        };
        const std::optional<EvenParts> equal = even(parts);
        if (!equal) return check(for_each_part(parts, to_one));
        check(in_a_group([&] {
            const Tensor own = parts[static_cast<std::size_t>(rank())];
            const ncclResult_t result = ncclReduceScatter(
                values.data(), own.data(), static_cast<std::size_t>(equal->count), type, ncclSum, nccl, stream);
            return result != ncclSuccess || equal->rest.empty() ? result : to_one(equal->rest, size() - 1);
        }));
    });
}

void NcclCommunicator::begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size());
    begin(FlightKind::all_gather, values, [&](ncclComm_t nccl, cudaStream_t stream) {
        const auto check = [&](ncclResult_t result) { collectives_->check(result, "an all-gather"); };
        const auto from_one = [&](Tensor part, int owner) {
            return ncclBroadcast(part.data(), part.data(), part.bytes(), ncclInt8, owner, nccl, stream);
        };
        const std::optional<EvenParts> equal = even(parts);
        if (!equal) return check(for_each_part(parts, from_one));
        check(in_a_group([&] {
            const Tensor own = parts[static_cast<std::size_t>(rank())].slice(0, equal->count);
            const ncclResult_t result = ncclAllGather(own.data(), values.data(), own.bytes(), ncclInt8, nccl, stream);
            return result != ncclSuccess || equal->rest.empty() ? result : from_one(equal->rest, size() - 1);
        }));
    });
}

void NcclCommunicator::finish_collectives() {
    if (!any_begun_) return;
    any_begun_ = false;
    process_->check_others();
    context_->order(collectives_->stream(), context_->compute());
}

const NcclChannel& NcclCommunicator::channel(int from, int to) const {
    return *transfers_[place(from, to, size())];
}

std::unique_ptr<Transfer> NcclCommunicator::begin_transfer(const NcclChannel& channel,
                                                           const std::function<void()>& issue) {
    auto transfer = std::make_unique<NcclTransfer>(context_, process_);
    context_->order(context_->compute(), channel.stream());
    issue();
    transfer->ended.record(channel.stream());
    return transfer;
}

std::unique_ptr<Transfer> NcclCommunicator::begin_send(Tensor values, int to, int tag) {
    group_->check_transfer(use_, to, tag);
    LOCKSTEP_ASSERT(use_ == Use::transfers);
    static_cast<void>(group_->note(FlightKind::send, values.bytes(), to, true));
    const NcclChannel& way = channel(rank(), to);
    return begin_transfer(way, [&] {
        if (values.count() > 0)
            way.check(ncclSend(values.data(), values.bytes(), ncclInt8, to, way.get(), way.stream()), "a send");
    });
}

std::unique_ptr<Transfer> NcclCommunicator::begin_receive(Tensor values, int from, int tag) {
    group_->check_transfer(use_, from, tag);
    LOCKSTEP_ASSERT(use_ == Use::transfers);
    static_cast<void>(group_->note(FlightKind::receive, values.bytes(), from, true));
    const NcclChannel& way = channel(from, rank());
    return begin_transfer(way, [&] {
        if (values.count() > 0)
            way.check(ncclRecv(values.data(), values.bytes(), ncclInt8, from, way.get(), way.stream()), "a receive");
    });
}

// In one group on the collectives' channel: the order of exchanges is that of all ranks.
std::unique_ptr<Transfer> NcclCommunicator::begin_exchange(const std::vector<Message>& messages, int tag) {
    std::size_t bytes = 0;
    for (const Message& message : messages) {
        group_->check_transfer(use_, message.rank, tag);
        bytes += message.values.bytes();
    }
    static_cast<void>(group_->note(FlightKind::exchange, bytes, -1, true));
    open_collectives();
    const NcclChannel& way = *collectives_;
    return begin_transfer(way, [&] {
        way.check(in_a_group([&] {
                      ncclResult_t result = ncclSuccess;
                      for (const auto& [values, rank, sent] : messages) {
                          if (values.count() == 0 || result != ncclSuccess) continue;
                          result =
                              sent ? ncclSend(values.data(), values.bytes(), ncclInt8, rank, way.get(), way.stream())
                                   : ncclRecv(values.data(), values.bytes(), ncclInt8, rank, way.get(), way.stream());
                      }
                      return result;
                  }),
                  "an exchange");
    });
}

}  // namespace lockstep::cluster
#endif
