#include "cuda_emulation/nccl/execution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/nccl/reduction.hpp"
#include "cuda_emulation/nccl/wire.hpp"

namespace lockstep::emulation::nccl {
namespace {

struct Aborted {};

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

// Operations that run together, looked at again and again until they are done.
class Task {
  public:
    Task(ncclComm& comm, std::vector<Operation*> operations) : comm_(comm), operations_(std::move(operations)) {}
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;

    bool poll() {
        const double now = seconds_now();
        if (last_look_ == 0) {
            begin();
        } else {
            // What this process did meanwhile on other streams is not waiting.
            waited_ += std::min(now - last_look_, longest_step);
        }
        last_look_ = now;
        // Another thread may abort at any moment; read before, so that the partners have been told of it.
        const bool aborted = comm_.aborted;
        ledger::take_announcements();
        if (aborted) throw Aborted{};
        for (Operation* operation : operations_) ledger::update(*operation);
        if (comm_.error != ncclSuccess) throw fault_error("{}", comm_.error_text());
        if (advance()) return true;
        check_departures();
        if (waited_ > wire::limit_seconds()) give_up();
        wire::pause(waited_);
        return false;
    }

  protected:
    virtual void begin() = 0;    // says that this rank is here
    virtual bool advance() = 0;  // whether it is done
    int world(int rank) const { return comm_.members[static_cast<std::size_t>(rank)]; }

    ncclComm& comm_;
    std::vector<Operation*> operations_;

  private:
    static constexpr double longest_step = 0.05;

    void check_departures() const {
        for (const Operation* operation : operations_)
            for (const Partner& partner : operation->partners) {
                const Departure departure = comm_.departures[static_cast<std::size_t>(partner.rank)];
                if (departure == Departure::aborted || (departure == Departure::destroyed && !partner.here))
                    fail(comm_, ncclRemoteError,
                         fmt::format("{} cannot end: rank {} has {} the communicator", who(*operation), partner.rank,
                                     departure == Departure::aborted ? "aborted" : "destroyed"));
            }
    }

    [[noreturn]] void give_up() const {
        const double limit = wire::limit_seconds();
        std::string sentence;
        for (const Operation* operation : operations_)
            if (const std::string absent = absences(*operation); !absent.empty())
                sentence +=
                    (sentence.empty() ? "" : ". ") + who(*operation) + fmt::format(" waited {} s", limit) + absent;
        if (sentence.empty()) sentence = fmt::format("{} waited {} s for data", who(*operations_.front()), limit);
        fail(comm_, ncclRemoteError, sentence);
    }

    double last_look_ = 0;
    double waited_ = 0;
};

struct Part {
    std::size_t first = 0, count = 0;
};

class Collective : public Task {
  public:
    explicit Collective(Operation& operation)
        : Task(*operation.comm, {&operation}),
          operation_(operation),
          width_(element_bytes(operation.request.type)),
          tag_(wire::new_tag()) {
        const Request& request = operation.request;
        const auto ranks = static_cast<std::size_t>(comm_.size), count = static_cast<std::size_t>(request.count);
        parts_.resize(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (request.kind == Kind::all_reduce)
                parts_[rank] = {count * rank / ranks, count * (rank + 1) / ranks - count * rank / ranks};
            else if (request.kind == Kind::all_gather || request.kind == Kind::reduce_scatter)
                parts_[rank] = {count * rank, count};
            else if (static_cast<int>(rank) == request.root)
                parts_[rank] = {0, count};
        }
        if (is_reduction(request.kind)) stages_.push_back(Stage::reduce);
        if (!is_reduction(request.kind) || request.kind == Kind::all_reduce) stages_.push_back(Stage::gather);
    }

  private:
    enum class Stage { reduce, gather };

    void begin() override { ledger::announce_presence(operation_, tag_); }

    bool advance() override {
        for (const Partner& partner : operation_.partners)
            if (!partner.here) return false;
        while (!stages_.empty()) {
            const bool reduces = stages_.front() == Stage::reduce;
            if (!transfers_) {
                transfers_.emplace();
                reduces ? start_reduce() : start_gather();
            }
            if (!transfers_->done()) return false;
            reduces ? finish_reduce() : finish_gather();
            transfers_.reset();
            stages_.pop_front();
        }
        return true;
    }

    const Part& own_part() const { return parts_[static_cast<std::size_t>(comm_.rank)]; }
    const Part& part(const Partner& partner) const { return parts_[static_cast<std::size_t>(partner.rank)]; }
    const char* input(std::size_t element) const {
        return static_cast<const char*>(operation_.input) + element * width_;
    }
    char* output(std::size_t element) const { return static_cast<char*>(operation_.output) + element * width_; }

    // parts_[r] of the inputs goes to rank r, which reduces it over the ranks in their order.
    void start_reduce() {
        const std::size_t own_bytes = own_part().count * width_;
        for (const Partner& partner : operation_.partners) {
            if (part(partner).count > 0)
                transfers_->send(world(partner.rank), partner.tag, input(part(partner).first),
                                 part(partner).count * width_);
            if (own_bytes == 0) continue;
            std::vector<char>& received = received_[partner.rank];
            received.resize(own_bytes);
            transfers_->receive(world(partner.rank), tag_, received.data(), own_bytes);
        }
    }
    void finish_reduce() {
        if (own_part().count == 0) return;
        std::vector<const void*> terms;
        for (int rank = 0; rank < comm_.size; ++rank)
            terms.push_back(rank == comm_.rank ? input(own_part().first) : received_[rank].data());
        std::vector<char> reduced(own_part().count * width_);  // the result may lie over the input
        reduce(reduced.data(), terms, own_part().count, operation_.request.type, operation_.request.operation);
        char* const to = output(operation_.request.kind == Kind::all_reduce ? own_part().first : 0);
        std::memcpy(to, reduced.data(), reduced.size());
        note_written(to, reduced.size());
    }

    // Every rank's output gets parts_[r] from rank r.
    const char* gathered() const {
        return operation_.request.kind == Kind::all_reduce ? output(own_part().first) : input(0);
    }
    void start_gather() {
        for (const Partner& partner : operation_.partners) {
            if (own_part().count > 0)
                transfers_->send(world(partner.rank), partner.tag, gathered(), own_part().count * width_);
            if (part(partner).count > 0)
                transfers_->receive(world(partner.rank), tag_, output(part(partner).first),
                                    part(partner).count * width_);
        }
    }
    void finish_gather() {
        if (own_part().count > 0) std::memmove(output(own_part().first), gathered(), own_part().count * width_);
        for (const Part& part : parts_) note_written(output(part.first), part.count * width_);
    }

    Operation& operation_;
    std::size_t width_;
    int tag_;
    std::vector<Part> parts_;
    std::deque<Stage> stages_;
    std::map<int, std::vector<char>> received_;
    std::optional<wire::Transfers> transfers_;
};

// All of them go on together, each as its peer comes.
class SendsAndReceives : public Task {
  public:
    using Task::Task;

  private:
    void begin() override {
        for (const Operation* operation : operations_) {
            tags_.push_back(wire::new_tag());
            ledger::announce_presence(*operation, tags_.back());
        }
        started_.resize(operations_.size());
    }

    bool advance() override {
        bool all = true;
        for (std::size_t index = 0; index < operations_.size(); ++index) {
            const Operation& operation = *operations_[index];
            const Partner& peer = operation.partners.front();
            if (!started_[index] && peer.here) {
                started_[index] = true;
                const std::size_t bytes = operation.request.count * element_bytes(operation.request.type);
                if (bytes > 0 && operation.request.kind == Kind::send)
                    transfers_.send(world(peer.rank), peer.tag, operation.input, bytes);
                else if (bytes > 0)
                    transfers_.receive(world(peer.rank), tags_[index], operation.output, bytes);
            }
            all = all && started_[index];
        }
        if (!all || !transfers_.done()) return false;
        for (const Operation* operation : operations_)
            if (operation->request.kind == Kind::receive)
                note_written(operation->output, operation->request.count * element_bytes(operation->request.type));
        return true;
    }

    std::vector<int> tags_;
    std::vector<bool> started_;
    wire::Transfers transfers_;
};

// The calls of one group on one communicator: its collectives one after another, then its sends and receives.
class Unit {
  public:
    Unit(std::vector<std::shared_ptr<Operation>> operations, cudaStream_t stream)
        : comm_(*operations.front()->comm), stream_(stream), operations_(std::move(operations)) {
        ++comm_.unfinished;
        queued().push_back(this);
        std::vector<Operation*> sends_and_receives;
        for (const auto& operation : operations_)
            if (is_collective(operation->request.kind))
                tasks_.push_back(std::make_unique<Collective>(*operation));
            else
                sends_and_receives.push_back(operation.get());
        if (!sends_and_receives.empty())
            tasks_.push_back(std::make_unique<SendsAndReceives>(comm_, sends_and_receives));
    }
    Unit(const Unit&) = delete;
    Unit& operator=(const Unit&) = delete;
    // Also without having run: after an error streams drop what they hold.
    ~Unit() {
        --comm_.unfinished;
        queued().remove(this);
    }

    // Of this process, not yet done.
    static std::list<Unit*>& queued() {
        static auto* all = new std::list<Unit*>;
        return *all;
    }

    bool poll() {
        try {
            while (!tasks_.empty()) {
                if (!tasks_.front()->poll()) return false;
                tasks_.pop_front();
            }
        } catch (const Aborted&) {
            tasks_.clear();  // its owner knows; what it was to write is not defined
        }
        return true;
    }

    const ncclComm& comm() const { return comm_; }
    cudaStream_t stream() const { return stream_; }

  private:
    ncclComm& comm_;
    cudaStream_t stream_;
    std::vector<std::shared_ptr<Operation>> operations_;
    std::deque<std::unique_ptr<Task>> tasks_;
};

}  // namespace

void issue(const std::vector<std::shared_ptr<Operation>>& operations, cudaStream_t stream) {
    ledger::announce(operations);
    enqueue_polled(stream, "NCCL", [unit = std::make_shared<Unit>(operations, stream)] { return unit->poll(); });
}

void drain(const ncclComm& comm) {
    const auto left = [&comm] {
        const auto& all = Unit::queued();
        const auto found =
            std::find_if(all.begin(), all.end(), [&comm](const Unit* unit) { return &unit->comm() == &comm; });
        return found == all.end() ? nullptr : *found;
    };
    // The stream may have been destroyed, its work being still carried out.
    while (const Unit* unit = left())
        if (cudaStreamSynchronize(unit->stream()) != cudaSuccess && cudaDeviceSynchronize() != cudaSuccess)
            throw fault_error("the device cannot be waited for with NCCL calls queued");
}

}  // namespace lockstep::emulation::nccl
