#include "cluster/mpi_communicator.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include "cluster/mpi_check.hpp"
#include "cluster/mpi_reduction.hpp"
#include "cluster/mpi_segments.hpp"
#include "cluster/mpi_transfer.hpp"
#include "cluster/mpi_wait.hpp"
#include "cluster/parts.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

// One operation of the flight recorder, however many messages it has.
class MpiTransfer final : public Transfer {
  public:
    ~MpiTransfer() override {
        LOCKSTEP_ASSERT((received.empty() && sent.empty()) || std::uncaught_exceptions() > 0);
        // The other rank may never come. What is sent may still be read until this process ends.
        for (MPI_Request& request : received) {
            static_cast<void>(MPI_Cancel(&request));
            static_cast<void>(MPI_Request_free(&request));
        }
        for (MPI_Request& request : sent) static_cast<void>(MPI_Request_free(&request));
    }
    void wait() override {
        if (sequence == 0) return;
        const FlightScope noted(std::exchange(sequence, 0));
        wait_for_all(received);
        wait_for_all(sent);
    }

    std::uint64_t sequence = 0;  // in the flight recorder; 0: waited for
    MpiRequests received, sent;
};

}  // namespace

MpiCommunicator::~MpiCommunicator() {
    // After a failure, MPI may still read and write what its operations were given.
    static std::vector<std::deque<Segment>> never_complete;
    if (!begun_.empty()) never_complete.push_back(std::move(begun_));
}

void MpiCommunicator::all_reduce(Tensor values, Reduce operation) {
    const FlightScope noted(group_->note(FlightKind::all_reduce, values.bytes()));
    group_->meet("all-reduce", values.bytes());
    all_reduce_segmented(values.data(), static_cast<std::size_t>(values.count()), values.type(), operation,
                         group_->comm());
    group_->meet("end of the all-reduce", values.bytes());
}

void MpiCommunicator::add(Segment segment) {
    queued_.push_back(std::move(segment));
    begin_queued();
}

void MpiCommunicator::begin_queued() {
    while (!queued_.empty()) {
        if (!pending_.empty() && reducing_bytes_ + queued_.front().reduced_bytes > 2 * largest_reduced_segment())
            return;
        begun_.push_back(std::move(queued_.front()));
        queued_.pop_front();
        reducing_bytes_ += begun_.back().reduced_bytes;
        pending_.push_back(MPI_REQUEST_NULL);
        begun_.back().begin(&pending_.back());
    }
}

void MpiCommunicator::begin(FlightKind kind, Tensor values, const std::function<void()>& issue) {
    // MPI may execute them in any order, which matters if they overlap.
    const auto* first = static_cast<const char*>(values.data());
    const Range own{first, first + values.bytes()};
    const auto meets = [&](const Range& other) { return own.first < other.last && other.first < own.last; };
    if (std::any_of(ranges_.begin(), ranges_.end(), meets)) finish_collectives();
    noted_.push_back(group_->note(kind, values.bytes()));
    group_->meet(flight_kind_name(kind), values.bytes());
    issue();
    ranges_.push_back(own);
    if (sync_mode() != SyncMode::collective) return;
    finish_collectives();
    group_->meet((std::string("end of the ") + flight_kind_name(kind)).c_str(), values.bytes());
}

void MpiCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    begin(FlightKind::all_reduce, values, [&] {
        const MpiReduction reduction = mpi_reduction(values.type(), operation);
        const std::size_t element = type_bytes(values.type());
        const auto reduce = [&](char* segment, int count) {
            add({static_cast<std::size_t>(count) * element, [=, this](MPI_Request* request) {
                     LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, segment, count, reduction.type, reduction.operation,
                                  group_->comm(), request);
                 }});
        };
        for_each_segment(values.data(), static_cast<std::size_t>(values.count()), element, reduce,
                         largest_reduced_segment());
    });
}

void MpiCommunicator::reduce_to(int owner, Tensor segment) {
    const MpiReduction reduction = mpi_reduction(segment.type(), Reduce::sum);
    add({segment.bytes(), [=, this](MPI_Request* request) {
             const bool own = owner == rank();
             LOCKSTEP_MPI(MPI_Ireduce, own ? MPI_IN_PLACE : segment.data(), own ? segment.data() : nullptr,
                          static_cast<int>(segment.count()), reduction.type, reduction.operation, owner, group_->comm(),
                          request);
         }});
}

// counts: how many elements of the segment are whose.
void MpiCommunicator::reduce_scatter(Tensor segment, std::vector<int> counts) {
    struct Arguments {
        std::vector<int> counts;
        std::vector<char> sum;  // MPI would put it at the beginning of the segment
    };
    const auto own = counts.begin() + rank();
    const Tensor part = segment.slice(std::accumulate(counts.begin(), own, std::int64_t{0}), *own);
    const auto arguments = std::make_shared<Arguments>(Arguments{std::move(counts), {}});
    const MpiReduction reduction = mpi_reduction(segment.type(), Reduce::sum);
    add({segment.bytes(),
         [=, this](MPI_Request* request) {
             arguments->sum.resize(part.bytes());
             LOCKSTEP_MPI(MPI_Ireduce_scatter, segment.data(), arguments->sum.data(), arguments->counts.data(),
                          reduction.type, reduction.operation, group_->comm(), request);
         },
         [=] { std::copy(arguments->sum.begin(), arguments->sum.end(), static_cast<char*>(part.data())); }});
}

// Of large parts, one of each owner's segments in turn, so that concurrent ones are reduced by different ranks. Small
// parts share operations, whose number then does not grow with the ranks.
void MpiCommunicator::begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size());
    const auto step =
        std::max(std::int64_t{1}, static_cast<std::int64_t>(largest_reduced_segment() / 2 / type_bytes(values.type())));
    begin(FlightKind::reduce_scatter, values, [&] {
        if (values.count() >= step * size()) {
            std::int64_t longest = 0;
            for (const Tensor& part : parts) longest = std::max(longest, part.count());
            for (std::int64_t first = 0; first < longest; first += step)
                for (int owner = 0; owner < size(); ++owner) {
                    const Tensor part = parts[static_cast<std::size_t>(owner)];
                    const std::int64_t count = std::min(step, part.count() - first);
                    if (count > 0) reduce_to(owner, part.slice(first, count));
                }
            return;
        }
        const Tensor flat = values.reshaped({values.count()});
        for (std::int64_t first = 0; first < flat.count(); first += step) {
            const std::int64_t last = std::min(first + step, flat.count());
            std::vector<int> counts;
            for (std::size_t owner = 0; owner < parts.size(); ++owner)
                counts.push_back(static_cast<int>(
                    std::max(std::min(last, cuts[owner + 1]) - std::max(first, cuts[owner]), std::int64_t{0})));
            const auto most = std::max_element(counts.begin(), counts.end());
            if (*most == last - first)
                reduce_to(static_cast<int>(most - counts.begin()), flat.slice(first, last - first));
            else
                reduce_scatter(flat.slice(first, last - first), std::move(counts));
        }
    });
}

void MpiCommunicator::broadcast_from(int owner, Tensor part) {
    for_each_segment(part.data(), part.bytes(), 1, [&](char* segment, int bytes) {
        add({0, [=, this](MPI_Request* request) {
                 LOCKSTEP_MPI(MPI_Ibcast, segment, bytes, MPI_BYTE, owner, group_->comm(), request);
             }});
    });
}

// Large parts one by one, small ones in one operation.
void MpiCommunicator::begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size());
    begin(FlightKind::all_gather, values, [&] {
        const std::size_t large = largest_segment() / 64;  // 4 MiB
        const bool one_by_one = std::any_of(parts.begin(), parts.end(), [&](const Tensor& part) {
            return part.bytes() >= large || part.count() == values.count();
        });
        if (one_by_one || values.count() > std::numeric_limits<int>::max()) {
            for (int owner = 0; owner < size(); ++owner) broadcast_from(owner, parts[static_cast<std::size_t>(owner)]);
            return;
        }
        struct Arguments {
            std::vector<int> counts, starts;
        };
        const auto arguments = std::make_shared<Arguments>();
        for (std::size_t owner = 0; owner < parts.size(); ++owner) {
            arguments->counts.push_back(static_cast<int>(parts[owner].count()));
            arguments->starts.push_back(static_cast<int>(cuts[owner]));
        }
        const MPI_Datatype type = mpi_reduction(values.type(), Reduce::sum).type;
        add({0, [=, this](MPI_Request* request) {
                 LOCKSTEP_MPI(MPI_Iallgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(),
                              arguments->counts.data(), arguments->starts.data(), type, group_->comm(), request);
             }});
    });
}

void MpiCommunicator::finish_collectives() {
    ranges_.clear();
    if (noted_.empty()) return;
    const std::uint64_t before = flight_recorder().wait_for(noted_.front());
    while (!pending_.empty()) {
        wait_for(static_cast<int>(pending_.size()), pending_.data());
        pending_.clear();
        for (const Segment& segment : begun_)
            if (segment.end) segment.end();
        begun_.clear();
        reducing_bytes_ = 0;
        begin_queued();
    }
    static_cast<void>(flight_recorder().wait_for(before));
    for (const std::uint64_t sequence : noted_) flight_recorder().done(sequence);
    noted_.clear();
}

std::unique_ptr<Transfer> MpiCommunicator::begin_send(Tensor values, int to, int tag) {
    group_->check_transfer(use_, to, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->sequence = group_->note(FlightKind::send, values.bytes(), to);
    start_send(transfer->sent, values.data(), values.bytes(), to, tag, group_->comm());
    return transfer;
}

std::unique_ptr<Transfer> MpiCommunicator::begin_receive(Tensor values, int from, int tag) {
    group_->check_transfer(use_, from, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->sequence = group_->note(FlightKind::receive, values.bytes(), from);
    start_receive(transfer->received, values.data(), values.bytes(), from, tag, group_->comm());
    return transfer;
}

std::unique_ptr<Transfer> MpiCommunicator::begin_exchange(const std::vector<Message>& messages, int tag) {
    std::size_t bytes = 0;
    for (const Message& message : messages) {
        group_->check_transfer(use_, message.rank, tag);
        bytes += message.values.bytes();
    }
    auto exchange = std::make_unique<MpiTransfer>();
    exchange->sequence = group_->note(FlightKind::exchange, bytes);
    for (const auto& [values, rank, sent] : messages)
        if (!sent) start_receive(exchange->received, values.data(), values.bytes(), rank, tag, group_->comm());
    for (const auto& [values, rank, sent] : messages)
        if (sent) start_send(exchange->sent, values.data(), values.bytes(), rank, tag, group_->comm());
    return exchange;
}

}  // namespace lockstep::cluster
