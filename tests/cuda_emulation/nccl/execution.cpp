#include "nccl/execution.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "nccl/reduction.hpp"
#include "nccl/wire.hpp"

namespace lockstep::emulation::nccl {
namespace {

struct Aborted {};

struct Unit;

// Queued and not yet run, by the number of their first call: the order of issue.
std::map<std::uint64_t, std::weak_ptr<Unit>>& queued() {
    static auto* all = new std::map<std::uint64_t, std::weak_ptr<Unit>>;
    return *all;
}

struct Unit {
    ncclComm* comm = nullptr;
    std::vector<std::shared_ptr<Operation>> operations;
    cudaEvent_t end = nullptr;

    Unit() = default;
    Unit(const Unit&) = delete;
    Unit& operator=(const Unit&) = delete;
    // Also without having run: a stream drops its queue after an error.
    ~Unit() {
        leave_queue();
        if (end) cudaEventDestroy(end);
    }
    std::uint64_t call() const { return operations.front()->call; }
    void leave_queue() {
        if (!operations.empty() && queued().erase(call()) > 0) --comm->unfinished;
    }
};

void check_runtime(cudaError_t result, const char* call) {
    if (result != cudaSuccess) throw fault_error("{} failed in the stand-in for NCCL", call);
}

[[noreturn]] void fail(ncclComm& comm, ncclResult_t result, const std::string& sentence) {
    comm.set_error(result, sentence);
    throw fault_error("{}", comm.error_text());
}

std::string who(const Operation& operation) {
    return fmt::format("{} (rank {} of the communicator {}, its NCCL call {})", describe(operation.request),
                       operation.comm->rank, operation.comm->name, operation.call);
}

std::string absences(const Operation& operation) {
    std::string text;
    for (const Partner& partner : operation.partners) {
        if (partner.here) continue;
        const std::string last = ledger::last_call_of(*operation.comm, partner.rank);
        text += fmt::format("; rank {} {}", partner.rank,
                            partner.called ? "has called it, but its stream does not come to it (streams run here when "
                                             "the host waits for them)"
                            : last.empty() ? "has not called it"
                                           : "has not called it, its last call being " + last);
    }
    return text;
}

// Waits for done(), while what others announce is taken in.
template <class Done>
void wait(ncclComm& comm, const std::vector<Operation*>& operations, Done done) {
    const double start = seconds_now(), limit = wire::limit_seconds();
    for (;;) {
        ledger::take_announcements();
        if (comm.aborted) throw Aborted{};
        for (Operation* operation : operations) ledger::update(*operation);
        if (comm.error != ncclSuccess) throw fault_error("{}", comm.error_text());
        if (done()) return;
        for (const Operation* operation : operations)
            for (const Partner& partner : operation->partners) {
                const Departure departure = comm.departures[static_cast<std::size_t>(partner.rank)];
                if (departure == Departure::aborted || (departure == Departure::destroyed && !partner.here))
                    fail(comm, ncclRemoteError,
                         fmt::format("{} cannot end: rank {} has {} the communicator", who(*operation), partner.rank,
                                     departure == Departure::aborted ? "aborted" : "destroyed"));
            }
        const double waited = seconds_now() - start;
        if (waited > limit) {
            std::string sentence;
            for (const Operation* operation : operations) {
                const std::string absent = absences(*operation);
                if (!absent.empty() || operations.size() == 1)
                    sentence +=
                        (sentence.empty() ? "" : ". ") + who(*operation) + fmt::format(" waited {} s", limit) + absent;
            }
            if (sentence.empty()) sentence = fmt::format("{} waited {} s for data", who(*operations.front()), limit);
            fail(comm, ncclRemoteError, sentence);
        }
        wire::pause(waited);
    }
}

void meet(Operation& operation) {
    ledger::announce_presence(operation);
    wait(*operation.comm, {&operation}, [&operation] {
        for (const Partner& partner : operation.partners)
            if (!partner.here) return false;
        return true;
    });
}

// Between two ranks one operation runs at a time, so tags only tell it from what an aborted one left behind.
int payload_tag(const ncclComm& comm, Kind kind, std::uint64_t index) {
    const std::uint64_t mixed =
        (comm.id * 0x9e3779b97f4a7c15u + index * 4 + static_cast<std::uint64_t>(kind)) * 0xd6e8feb86659fd93u;
    return wire::first_payload_tag + static_cast<int>((mixed >> 32) % wire::payload_tags);
}

struct Part {
    std::size_t first = 0, count = 0;
};

class Collective {
  public:
    explicit Collective(Operation& operation)
        : operation_(operation),
          comm_(*operation.comm),
          width_(element_bytes(operation.request.type)),
          tag_(payload_tag(comm_, Kind::all_reduce, operation.index)) {}

    void run() {
        meet(operation_);
        const Request& request = operation_.request;
        const auto ranks = static_cast<std::size_t>(comm_.size);
        const auto count = static_cast<std::size_t>(request.count);
        std::vector<Part> parts(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank)
            parts[rank] = request.kind == Kind::all_reduce
                              ? Part{count * rank / ranks, count * (rank + 1) / ranks - count * rank / ranks}
                              : Part{count * rank, count};
        const Part& own = parts[static_cast<std::size_t>(comm_.rank)];
        switch (request.kind) {
            case Kind::all_reduce:
                reduce_parts(parts, output(own.first));
                gather_parts(parts, output(own.first));
                return;
            case Kind::reduce_scatter:
                return reduce_parts(parts, output(0));
            case Kind::all_gather:
                return gather_parts(parts, operation_.input);
            case Kind::reduce:
                parts.assign(ranks, Part{});
                parts[static_cast<std::size_t>(request.root)] = {0, count};
                return reduce_parts(parts, output(0));
            case Kind::broadcast:
                parts.assign(ranks, Part{});
                parts[static_cast<std::size_t>(request.root)] = {0, count};
                return gather_parts(parts, operation_.input);
            default:
                LOCKSTEP_ASSERT(!"a collective");
        }
    }

  private:
    const char* input(std::size_t element) const {
        return static_cast<const char*>(operation_.input) + element * width_;
    }
    char* output(std::size_t element) const { return static_cast<char*>(operation_.output) + element * width_; }
    int world(std::size_t rank) const { return comm_.members[rank]; }
    void finish(wire::Transfers& transfers) {
        wait(comm_, {&operation_}, [&transfers] { return transfers.done(); });
    }

    // parts[r] of the inputs, reduced over the ranks in their order, is at `result` on rank r.
    void reduce_parts(const std::vector<Part>& parts, char* result) {
        const auto self = static_cast<std::size_t>(comm_.rank);
        const Part own = parts[self];
        std::vector<std::vector<char>> received(parts.size());
        std::vector<const void*> terms(parts.size());
        wire::Transfers transfers;
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
            terms[rank] = input(own.first);
            if (rank == self || own.count == 0) continue;
            received[rank].resize(own.count * width_);
            terms[rank] = received[rank].data();
            transfers.receive(world(rank), tag_, received[rank].data(), received[rank].size());
        }
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
            if (rank != self && parts[rank].count > 0)
                transfers.send(world(rank), tag_, input(parts[rank].first), parts[rank].count * width_);
        finish(transfers);
        if (own.count == 0) return;
        std::vector<char> reduced(own.count * width_);  // the result may lie over the input
        reduce(reduced.data(), terms, own.count, operation_.request.type, operation_.request.operation);
        std::memcpy(result, reduced.data(), reduced.size());
    }

    // Every rank's output gets parts[r] from rank r, where it lies at `own_part`.
    void gather_parts(const std::vector<Part>& parts, const void* own_part) {
        const auto self = static_cast<std::size_t>(comm_.rank);
        wire::Transfers transfers;
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
            if (rank == self) continue;
            if (parts[rank].count > 0)
                transfers.receive(world(rank), tag_, output(parts[rank].first), parts[rank].count * width_);
            if (parts[self].count > 0) transfers.send(world(rank), tag_, own_part, parts[self].count * width_);
        }
        finish(transfers);
        if (parts[self].count > 0) std::memmove(output(parts[self].first), own_part, parts[self].count * width_);
    }

    Operation& operation_;
    ncclComm& comm_;
    std::size_t width_;
    int tag_;
};

// All of them go on together, each as its peer comes.
void run_sends_and_receives(ncclComm& comm, const std::vector<Operation*>& operations) {
    for (const Operation* operation : operations) ledger::announce_presence(*operation);
    wire::Transfers transfers;
    std::vector<char> started(operations.size(), 0);
    wait(comm, operations, [&] {
        bool all = true;
        for (std::size_t index = 0; index < operations.size(); ++index) {
            const Operation& operation = *operations[index];
            if (started[index]) continue;
            if (!operation.partners.front().here) {
                all = false;
                continue;
            }
            started[index] = 1;
            const Request& request = operation.request;
            const std::size_t bytes = request.count * element_bytes(request.type);
            const int peer = comm.members[static_cast<std::size_t>(request.root)];
            const int tag = payload_tag(comm, Kind::send, operation.index);
            if (bytes == 0) continue;
            if (request.kind == Kind::send)
                transfers.send(peer, tag, operation.input, bytes);
            else
                transfers.receive(peer, tag, operation.output, bytes);
        }
        return all && transfers.done();
    });
}

void run_queued(const std::shared_ptr<Unit>& unit) {
    check_runtime(cudaEventSynchronize(unit->end), "cudaEventSynchronize");
    LOCKSTEP_ASSERT(queued().count(unit->call()) == 0);
}

void run(Unit& unit) {
    struct Leave {
        Unit& unit;
        ~Leave() { unit.leave_queue(); }
    };
    const Leave leave{unit};
    ncclComm& comm = *unit.comm;
    if (comm.aborted) return;
    if (comm.error != ncclSuccess) throw fault_error("{}", comm.error_text());
    while (queued().begin()->first < unit.call()) run_queued(queued().begin()->second.lock());
    try {
        std::vector<Operation*> sends_and_receives;
        for (const auto& operation : unit.operations)
            if (is_collective(operation->request.kind))
                Collective(*operation).run();
            else
                sends_and_receives.push_back(operation.get());
        if (!sends_and_receives.empty()) run_sends_and_receives(comm, sends_and_receives);
    } catch (const Aborted&) {
        return;  // its owner knows; what it was to write is not defined
    }
}

}  // namespace

void issue(const std::vector<std::shared_ptr<Operation>>& operations, cudaStream_t stream) {
    ledger::announce(operations);
    const auto unit = std::make_shared<Unit>();
    unit->comm = operations.front()->comm;
    unit->operations = operations;
    queued()[unit->call()] = unit;
    ++unit->comm->unfinished;
    enqueue(stream, "NCCL", [unit] { run(*unit); });
    check_runtime(cudaEventCreateWithFlags(&unit->end, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check_runtime(cudaEventRecord(unit->end, stream), "cudaEventRecord");
}

void drain(const ncclComm& comm) {
    std::vector<std::weak_ptr<Unit>> units;
    for (const auto& [call, unit] : queued())
        if (unit.lock()->comm == &comm) units.push_back(unit);
    for (const auto& each : units)
        if (const auto unit = each.lock(); unit && queued().count(unit->call())) run_queued(unit);
}

}  // namespace lockstep::emulation::nccl
