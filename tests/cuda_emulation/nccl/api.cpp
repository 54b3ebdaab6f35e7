// The functions of nccl.h: groups, the making of communicators, and errors as codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda_emulation/nccl/checks.hpp"
#include "cuda_emulation/nccl/communicator.hpp"
#include "cuda_emulation/nccl/execution.hpp"
#include "cuda_emulation/nccl/wire.hpp"

namespace lockstep::emulation::nccl {
namespace {

std::mutex last_error_mutex;
std::string last_error;

ncclResult_t say(ncclResult_t result, const std::string& sentence) {
    const std::lock_guard lock(last_error_mutex);
    last_error = sentence;
    return result;
}

// Runs an entry point; what it throws becomes its code.
template <class Body>
ncclResult_t guarded(Body body) {
    try {
        return body();
    } catch (const Failure& error) {
        return say(error.result, error.sentence);
    } catch (const Error& error) {
        return say(error.code() == ExitCode::usage ? ncclInvalidUsage : ncclSystemError, error.what());
    } catch (const std::exception& error) {
        return say(ncclInternalError, error.what());
    }
}

// What an ncclUniqueId holds.
struct UniqueId {
    std::uint64_t magic = 0, communicator = 0;
    std::int32_t world_rank = 0;
};
constexpr std::uint64_t unique_id_magic = 0x6c6f636b73746570u;

// A call within ncclGroupStart … ncclGroupEnd.
struct Grouped {
    std::shared_ptr<Operation> operation;
    cudaStream_t stream = nullptr;
};
struct Group {
    int depth = 0;
    std::vector<Grouped> calls;
    std::vector<ncclComm*> joining;
    ncclResult_t error = ncclSuccess;
};
thread_local Group group;

void abandon(ncclComm& comm) {
    comm.closed = true;
    comm.departed = true;  // nobody counts on it yet
}

// Whether the communicator is made; an error closes it.
bool join_on(ncclComm& comm) {
    if (!comm.joining || !comm.joining->progress()) return comm.ready;
    const auto exchange = std::move(comm.joining);
    complete(comm, exchange->members(), comm.id, comm.name);
    return true;
}

void join_all(const std::vector<ncclComm*>& joining) {
    try {
        const double start = seconds_now();
        for (bool done = false; !done;) {
            done = true;
            for (ncclComm* comm : joining)
                if (comm->blocking && !join_on(*comm)) done = false;
            if (!done) wire::pause(seconds_now() - start);
        }
    } catch (...) {
        for (ncclComm* comm : joining)
            if (!comm->ready) abandon(*comm);
        throw;
    }
}

ncclResult_t state_after_call(const ncclComm& comm) {
    return comm.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t join(ncclComm_t* made, int ranks, const ncclUniqueId& bytes, int rank, const ncclConfig_t* config) {
    check_present();
    check_config(config);
    if (!made) throw failure(ncclInvalidArgument, "no place for the NCCL communicator");
    *made = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        throw failure(ncclInvalidArgument, "rank {} of {} is no rank of a NCCL communicator", rank, ranks);
    UniqueId id;
    std::memcpy(&id, bytes.internal, sizeof id);
    if (id.magic != unique_id_magic)
        throw failure(ncclInvalidArgument, "the NCCL unique id is not one that ncclGetUniqueId made");
    if (ranks > 1 && !wire::may_call())
        throw failure(ncclSystemError, "NCCL's stand-in needs MPI, called by the thread that initialised it");

    Member own = this_process();
    own.size = ranks;
    own.rank = rank;
    ncclComm* comm = make_communicator(config);
    comm->id = id.communicator;
    comm->rank = rank;
    comm->device = own.device;
    if (comm->name.empty()) comm->name = fmt::format("{}.{}", id.world_rank, id.communicator & 0xffffffffu);
    comm->joining = std::make_unique<Exchange>(ExchangeKey{id.communicator, 0}, id.world_rank, own);
    *made = comm;
    if (group.depth > 0) {
        group.joining.push_back(comm);
    } else {
        try {
            join_all({comm});
        } catch (...) {
            *made = nullptr;
            throw;
        }
    }
    return state_after_call(*comm);
}

ncclResult_t split(ncclComm& parent, int color, int key, ncclComm_t* made, const ncclConfig_t* config) {
    check_usable(&parent);
    check_config(config);
    if (!made) throw failure(ncclInvalidArgument, "no place for the NCCL communicator");
    *made = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        throw failure(ncclInvalidArgument, "{} is no color of ncclCommSplit", color);
    if (group.depth > 0) throw failure(ncclInvalidUsage, "the stand-in for NCCL splits outside of groups only");
    if (parent.unfinished > 0)
        throw failure(ncclInvalidUsage,
                      "ncclCommSplit of the communicator {} with {} calls still queued may deadlock; wait for its "
                      "streams first",
                      parent.name, parent.unfinished);
    Member own = this_process();
    own.size = parent.size;
    own.rank = parent.rank;
    own.color = color;
    own.key = key;
    Exchange exchange({parent.id, ++parent.splits}, parent.members.front(), own);
    const double start = seconds_now();
    while (!exchange.progress()) wire::pause(seconds_now() - start);
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;

    std::vector<Member> members;
    for (const Member& member : exchange.members())
        if (member.color == color) members.push_back(member);
    std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.key < b.key; });
    ncclConfig_t inherited = NCCL_CONFIG_INITIALIZER;
    inherited.blocking = parent.blocking ? 1 : 0;
    ncclComm* comm = make_communicator(config ? config : &inherited);
    for (std::size_t rank = 0; rank < members.size(); ++rank)
        if (members[rank].world == own.world) comm->rank = static_cast<int>(rank);
    comm->device = own.device;
    // The same on all members, and another than that of any communicator made from a unique id (whose top bit is 0).
    const std::uint64_t mixed = (parent.id * 0x9e3779b97f4a7c15u + parent.splits) * 0xbf58476d1ce4e5b9u;
    const std::uint64_t id =
        ((mixed ^ (mixed >> 29)) * 0x94d049bb133111ebu + static_cast<std::uint64_t>(color)) | (std::uint64_t{1} << 63);
    complete(*comm, members, id, fmt::format("{}/{}:{}", parent.name, parent.splits, color));
    *made = comm;
    return state_after_call(*comm);
}

void issue_group(const std::vector<Grouped>& calls) {
    // One unit for each communicator, in the order of first use.
    std::vector<ncclComm*> order;
    for (const Grouped& call : calls)
        if (std::find(order.begin(), order.end(), call.operation->comm) == order.end())
            order.push_back(call.operation->comm);
    for (ncclComm* comm : order) {
        std::vector<std::shared_ptr<Operation>> operations;
        cudaStream_t stream = nullptr;
        for (const Grouped& call : calls) {
            if (call.operation->comm != comm) continue;
            if (!operations.empty() && call.stream != stream)
                throw failure(
                    ncclInvalidUsage,
                    "the stand-in for NCCL takes one stream for a communicator in a group; {} comes on another",
                    describe(call.operation->request));
            stream = call.stream;
            operations.push_back(call.operation);
        }
        if (comm->blocking)
            issue(operations, stream);
        else
            comm->delayed.push_back([operations, stream] { issue(operations, stream); });
    }
}

ncclResult_t call(Request request, const void* input, void* output, ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t result = guarded([&] {
        check_usable(comm);
        check_request(request, *comm);
        check_stream(request, stream);
        const auto operation = std::make_shared<Operation>();
        operation->request = request;
        operation->input = input;
        operation->output = output;
        operation->comm = comm;
        check_buffers(*operation);
        if (group.depth > 0) {
            group.calls.push_back({operation, stream});
            return ncclSuccess;
        }
        issue_group({{operation, stream}});
        return state_after_call(*comm);
    });
    if (group.depth > 0 && result != ncclSuccess && group.error == ncclSuccess) group.error = result;
    return result;
}

ncclResult_t end_group() {
    if (group.depth == 0) throw failure(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return ncclSuccess;
    const Group ended = std::exchange(group, Group{});
    if (ended.error != ncclSuccess) {
        for (ncclComm* comm : ended.joining) abandon(*comm);
        return ended.error;  // its sentence is the last error
    }
    join_all(ended.joining);
    issue_group(ended.calls);
    ncclResult_t result = ncclSuccess;
    for (const ncclComm* comm : ended.joining)
        if (!comm->blocking) result = ncclInProgress;
    for (const Grouped& each : ended.calls)
        if (!each.operation->comm->blocking) result = ncclInProgress;
    return result;
}

// What a communicator that does not block has still to do, done when its owner asks for its state.
ncclResult_t go_on(ncclComm& comm) {
    if (comm.error != ncclSuccess || comm.blocking || !wire::may_call())
        return static_cast<ncclResult_t>(comm.error.load());
    try {
        if (!join_on(comm)) return ncclInProgress;
        for (const auto& issue_now : std::exchange(comm.delayed, {})) issue_now();
    } catch (const Error& error) {
        comm.set_error(error.code() == ExitCode::usage ? ncclInvalidUsage : ncclSystemError, error.what());
        say(ncclSystemError, error.what());
    }
    return static_cast<ncclResult_t>(comm.error.load());
}

ncclResult_t finish(ncclComm& comm) {
    check_usable(&comm);
    try {
        drain(comm);
    } catch (const Error&) {
        if (comm.error == ncclSuccess) throw;
    }
    if (comm.error != ncclSuccess) throw Failure{static_cast<ncclResult_t>(comm.error.load()), comm.error_text()};
    return ncclSuccess;
}

// As the library has it, destroying is done by all ranks together.
void destroy(ncclComm& comm) {
    if (comm.error != ncclSuccess)
        throw failure(ncclInvalidUsage,
                      "ncclCommDestroy of the communicator {}, which failed, may hang; call ncclCommAbort ({})",
                      comm.name, comm.error_text());
    finish(comm);
    comm.closed = true;
    ledger::leave(comm, Departure::destroyed);
    for (const double start = seconds_now();; wire::pause(seconds_now() - start)) {
        ledger::take_announcements();
        std::string missing;
        for (int rank = 0; rank < comm.size; ++rank)
            if (rank != comm.rank && comm.departures[static_cast<std::size_t>(rank)] == Departure::none)
                missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        if (missing.empty()) return;
        if (seconds_now() - start > wire::limit_seconds())
            throw failure(ncclRemoteError,
                          "ncclCommDestroy of the communicator {} waited {} s on rank {}; not called by its ranks {}",
                          comm.name, wire::limit_seconds(), comm.rank, missing);
    }
}

}  // namespace
}  // namespace lockstep::emulation::nccl

using namespace lockstep::emulation::nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    return guarded([&] {
        check_present();
        if (!version) throw failure(ncclInvalidArgument, "no place for NCCL's version");
        *version = NCCL_VERSION_CODE;
        return ncclSuccess;
    });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return guarded([&] {
        check_present();
        if (!id) throw failure(ncclInvalidArgument, "no place for the NCCL unique id");
        static std::atomic<std::uint32_t> made{0};
        UniqueId own;
        own.magic = unique_id_magic;
        own.world_rank = wire::rank();
        own.communicator = (static_cast<std::uint64_t>(own.world_rank) << 32) | ++made;
        *id = {};
        std::memcpy(id->internal, &own, sizeof own);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
    return guarded([&] { return join(comm, nranks, id, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return guarded([&] { return join(comm, nranks, id, rank, config); });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
    return guarded([&] {
        check_handle(comm);
        return split(*comm, color, key, newcomm, config);
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    return guarded([&] {
        check_handle(comm);
        return finish(*comm);
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return guarded([&] {
        check_handle(comm);
        destroy(*comm);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    return guarded([&] {
        check_handle(comm);
        comm->aborted = true;
        comm->closed = true;
        if (comm->ready && (comm->size == 1 || wire::may_call())) ledger::leave(*comm, Departure::aborted);
        return ncclSuccess;
    });
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "a CUDA call failed";
        case ncclSystemError:
            return "a system call or an external library failed";
        case ncclInternalError:
            return "an internal check failed";
        case ncclInvalidArgument:
            return "an argument is invalid";
        case ncclInvalidUsage:
            return "a call is not allowed in this way or here";
        case ncclRemoteError:
            return "another rank failed or left";
        case ncclInProgress:
            return "an operation is in progress";
        default:
            return "an unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) {
    thread_local std::string text;
    const std::lock_guard lock(last_error_mutex);
    text = last_error;
    return text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    return guarded([&] {
        check_handle(comm);
        if (!error) throw failure(ncclInvalidArgument, "no place for the asynchronous error");
        *error = go_on(*comm);
        if (*error != ncclSuccess && *error != ncclInProgress) say(*error, comm->error_text());
        return ncclSuccess;
    });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
    return guarded([&] {
        check_usable(comm);
        *count = comm->size;
        return ncclSuccess;
    });
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
    return guarded([&] {
        check_usable(comm);
        *device = comm->device;
        return ncclSuccess;
    });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
    return guarded([&] {
        check_usable(comm);
        *rank = comm->rank;
        return ncclSuccess;
    });
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return call({Kind::all_reduce, type, op, 0, count}, sendbuff, recvbuff, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call({Kind::reduce_scatter, type, op, 0, recvcount}, sendbuff, recvbuff, comm, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return call({Kind::all_gather, type, 0, 0, sendcount}, sendbuff, recvbuff, comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return call({Kind::broadcast, type, 0, root, count}, sendbuff, recvbuff, comm, stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return call({Kind::reduce, type, op, root, count}, sendbuff, recvbuff, comm, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call({Kind::send, type, 0, peer, count}, sendbuff, nullptr, comm, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call({Kind::receive, type, 0, peer, count}, nullptr, recvbuff, comm, stream);
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    return guarded([] { return end_group(); });
}

}  // extern "C"
