#include "cluster/mpi_communicator.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/mpi_pieces.hpp"
#include "cluster/mpi_reduction.hpp"
#include "cluster/mpi_wait.hpp"
#include "cluster/parts.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

// How long a rank waits in the sync mode `collective` before it says so.
constexpr double first_word_seconds = 5;

// A communicator of these ranks of the world, whose messages meet no other's.
MPI_Comm make_group(const std::vector<int>& ranks) {
    LOCKSTEP_ASSERT(!ranks.empty() && ranks.front() >= 0);
    LOCKSTEP_ASSERT(std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end());
    const std::vector<int> all = all_ranks();
    MPI_Comm made = MPI_COMM_NULL;
    if (ranks == all) {
        LOCKSTEP_MPI(MPI_Comm_dup, MPI_COMM_WORLD, &made);
        return made;
    }
    int own = 0;
    LOCKSTEP_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &own);
    LOCKSTEP_ASSERT(std::binary_search(ranks.begin(), ranks.end(), own) && ranks.back() <= all.back());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    LOCKSTEP_MPI(MPI_Comm_group, MPI_COMM_WORLD, &world);
    LOCKSTEP_MPI(MPI_Group_incl, world, static_cast<int>(ranks.size()), ranks.data(), &group);
    LOCKSTEP_MPI(MPI_Comm_create_group, MPI_COMM_WORLD, group, 0, &made);
    LOCKSTEP_MPI(MPI_Group_free, &group);
    LOCKSTEP_MPI(MPI_Group_free, &world);
    return made;
}

void all_reduce_pieces(void* data, std::size_t count, Type type, Reduce operation, MPI_Comm comm) {
    const MpiReduction reduction = mpi_reduction(type, operation);
    const auto reduce = [&](char* piece, int elements) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, piece, elements, reduction.type, reduction.operation, comm,
                         request);
        });
    };
    for_each_piece(data, count, type_bytes(type), reduce, largest_reduced_piece());
}

}  // namespace

std::size_t largest_piece() {
    static const std::size_t bytes = [] {
        const char* text = std::getenv("LOCKSTEP_MPI_PIECE_BYTES");
        const std::size_t given = text ? std::strtoull(text, nullptr, 10) : 0;
        return given >= sizeof(double) ? given / sizeof(double) * sizeof(double) : std::size_t{1} << 28;
    }();
    return bytes;
}

std::vector<int> all_ranks() {
    int size = 1;
    LOCKSTEP_MPI(MPI_Comm_size, MPI_COMM_WORLD, &size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

MpiCommunicator::MpiCommunicator(const std::vector<int>& ranks, Use use, const std::string& name)
    : communicator_(make_group(ranks)),
      use_(use),
      ranks_(ranks),
      flight_group_(flight_recorder().add_group(name, ranks)) {
    LOCKSTEP_MPI(MPI_Comm_set_errhandler, communicator_, MPI_ERRORS_RETURN);
    LOCKSTEP_MPI(MPI_Comm_dup, communicator_, &exchanges_);
    LOCKSTEP_MPI(MPI_Comm_set_errhandler, exchanges_, MPI_ERRORS_RETURN);
    LOCKSTEP_MPI(MPI_Comm_rank, communicator_, &rank_);
    LOCKSTEP_MPI(MPI_Comm_size, communicator_, &size_);
}

MpiCommunicator::~MpiCommunicator() {
    // MPI_Comm_free is collective in principle; while ranks unwind from an error some may never come, and the memory of
    // a communicator does not matter then. MPI_Finalize frees what is left.
}

std::uint64_t MpiCommunicator::note(FlightKind kind, std::size_t bytes, int peer, bool on_device) const {
    const int of_world = peer < 0 ? -1 : ranks_[static_cast<std::size_t>(peer)];
    return flight_recorder().begin(flight_group_, kind, bytes, of_world, on_device);
}

void MpiCommunicator::all_reduce(Tensor values, Reduce operation) {
    const FlightScope noted(note(FlightKind::all_reduce, values.bytes()));
    meet("all-reduce", values.bytes());
    all_reduce_pieces(values.data(), static_cast<std::size_t>(values.count()), values.type(), operation, communicator_);
    meet("end of the all-reduce", values.bytes());
}

void MpiCommunicator::add(Piece piece) {
    not_begun_.push_back(std::move(piece));
    begin_what_has_room();
}

void MpiCommunicator::begin_what_has_room() {
    while (!not_begun_.empty()) {
        const Piece& piece = not_begun_.front();
        if (!under_way_.empty() && reduced_at_once_ + piece.reduced_bytes > 2 * largest_reduced_piece()) return;
        reduced_at_once_ += piece.reduced_bytes;
        under_way_.push_back(MPI_REQUEST_NULL);
        piece.begin(&under_way_.back());
        not_begun_.pop_front();
    }
}

void MpiCommunicator::begin(FlightKind kind, Tensor values, const std::function<void()>& issue) {
    // MPI may run them in any order, which shows where they share memory.
    const auto* first = static_cast<const char*>(values.data());
    const Range own{first, first + values.bytes()};
    const auto meets = [&](const Range& other) { return own.first < other.last && other.first < own.last; };
    if (std::any_of(ranges_.begin(), ranges_.end(), meets)) finish_collectives();
    noted_.push_back(note(kind, values.bytes()));
    meet(flight_kind_name(kind), values.bytes());
    issue();
    ranges_.push_back(own);
    if (sync_mode() != SyncMode::collective) return;
    finish_collectives();
    meet((std::string("end of the ") + flight_kind_name(kind)).c_str(), values.bytes());
}

void MpiCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    begin(FlightKind::all_reduce, values, [&] {
        const MpiReduction reduction = mpi_reduction(values.type(), operation);
        const std::size_t element = type_bytes(values.type());
        const auto reduce = [&](char* piece, int count) {
            add({static_cast<std::size_t>(count) * element, [=, this](MPI_Request* request) {
                     LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, piece, count, reduction.type, reduction.operation,
                                  communicator_, request);
                 }});
        };
        for_each_piece(values.data(), static_cast<std::size_t>(values.count()), element, reduce,
                       largest_reduced_piece());
    });
}

void MpiCommunicator::begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size_);
    std::int64_t longest = 0;
    for (const Tensor& part : parts) longest = std::max(longest, part.count());
    begin(FlightKind::reduce_scatter, values, [&] {
        const MpiReduction reduction = mpi_reduction(values.type(), Reduce::sum);
        const std::size_t element = type_bytes(values.type());
        const auto step = std::max(std::int64_t{1}, static_cast<std::int64_t>(largest_reduced_piece() / 2 / element));
        // A piece of each owner's part in turn, so that those under way at one time are added up by different ranks.
        for (std::int64_t first = 0; first < longest; first += step) {
            for (int owner = 0; owner < size_; ++owner) {
                const Tensor part = parts[static_cast<std::size_t>(owner)];
                const std::int64_t count = std::min(step, part.count() - first);
                if (count <= 0) continue;
                const Tensor piece = part.slice(first, count);
                add({piece.bytes(), [=, this](MPI_Request* request) {
                         const bool own = owner == rank_;
                         LOCKSTEP_MPI(MPI_Ireduce, own ? MPI_IN_PLACE : piece.data(), own ? piece.data() : nullptr,
                                      static_cast<int>(count), reduction.type, reduction.operation, owner,
                                      communicator_, request);
                     }});
            }
        }
    });
}

void MpiCommunicator::begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) {
    const std::vector<Tensor> parts = parts_of(values, cuts, size_);
    begin(FlightKind::all_gather, values, [&] {
        for (int owner = 0; owner < size_; ++owner) {
            const Tensor part = parts[static_cast<std::size_t>(owner)];
            for_each_piece(part.data(), part.bytes(), 1, [&](char* piece, int bytes) {
                add({0, [=, this](MPI_Request* request) {
                         LOCKSTEP_MPI(MPI_Ibcast, piece, bytes, MPI_BYTE, owner, communicator_, request);
                     }});
            });
        }
    });
}

void MpiCommunicator::finish_collectives() {
    ranges_.clear();
    if (noted_.empty()) return;
    const std::uint64_t before = flight_recorder().wait_for(noted_.front());
    while (!under_way_.empty()) {
        wait_for(static_cast<int>(under_way_.size()), under_way_.data());
        under_way_.clear();
        reduced_at_once_ = 0;
        begin_what_has_room();
    }
    static_cast<void>(flight_recorder().wait_for(before));
    for (const std::uint64_t sequence : noted_) flight_recorder().done(sequence);
    noted_.clear();
}

void MpiCommunicator::meet(const char* what, std::size_t bytes) {
    if (sync_mode() != SyncMode::collective) return;
    ++met_;
    const std::uint64_t before = flight_recorder().wait_for(flight_recorder().newest());
    MPI_Request request = MPI_REQUEST_NULL;
    LOCKSTEP_MPI(MPI_Ibarrier, communicator_, &request);
    double next_word = seconds_now() + first_word_seconds;
    for (int done = 0; !done;) {
        LOCKSTEP_MPI(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
        if (!done) static_cast<void>(sched_yield());
        if (done || seconds_now() < next_word) continue;
        log::warning("rank {} waits for the other ranks at operation {}, {} of {}", rank_, met_, what,
                     human_bytes(static_cast<double>(bytes)));
        next_word += 10 * first_word_seconds;
    }
    static_cast<void>(flight_recorder().wait_for(before));
}

void MpiCommunicator::all_reduce(std::vector<double>& values, Reduce operation) {
    const FlightScope noted(note(FlightKind::all_reduce, values.size() * sizeof(double)));
    all_reduce_pieces(values.data(), values.size(), Type::fp64, operation, communicator_);
}

void MpiCommunicator::all_reduce(std::vector<std::int64_t>& values, Reduce operation) {
    const FlightScope noted(note(FlightKind::all_reduce, values.size() * sizeof(std::int64_t)));
    const MPI_Op op = mpi_reduction(Type::int32, operation).operation;
    for_each_piece(values.data(), values.size(), sizeof(std::int64_t), [&](char* piece, int count) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, piece, count, MPI_INT64_T, op, communicator_, request);
        });
    });
}

void MpiCommunicator::broadcast(void* data, std::size_t bytes, int root) {
    const FlightScope noted(note(FlightKind::broadcast, bytes));
    for_each_piece(data, bytes, 1, [&](char* piece, int count) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Ibcast, piece, count, MPI_BYTE, root, communicator_, request);
        });
    });
}

std::vector<char> MpiCommunicator::gather(const void* data, std::size_t bytes, int root) {
    std::vector<char> all(rank_ == root ? bytes * static_cast<std::size_t>(size_) : 0);
    if (bytes == 0) return all;
    const FlightScope noted(note(FlightKind::gather, bytes));
    const std::size_t step = largest_piece();
    if (bytes <= step) {
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Igather, data, static_cast<int>(bytes), MPI_BYTE, all.data(), static_cast<int>(bytes),
                         MPI_BYTE, root, communicator_, request);
        });
        return all;
    }
    std::vector<char> piece(rank_ == root ? step * static_cast<std::size_t>(size_) : 0);
    for (std::size_t first = 0; first < bytes; first += step) {
        const std::size_t now = std::min(step, bytes - first);
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Igather, static_cast<const char*>(data) + first, static_cast<int>(now), MPI_BYTE,
                         piece.data(), static_cast<int>(now), MPI_BYTE, root, communicator_, request);
        });
        if (rank_ != root) continue;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
            std::memcpy(all.data() + rank * bytes + first, piece.data() + rank * now, now);
    }
    return all;
}

std::vector<char> MpiCommunicator::all_gather_bytes(const void* data, std::size_t bytes) {
    const FlightScope noted(note(FlightKind::all_gather, bytes));
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size_));
    const std::uint64_t own = bytes;
    wait_for([&](MPI_Request* request) {
        LOCKSTEP_MPI(MPI_Iallgather, &own, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, communicator_, request);
    });
    std::vector<std::uint64_t> offsets(sizes.size() + 1);
    std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
    std::vector<char> all(offsets.back());
    if (all.size() <= largest_piece()) {
        const std::vector<int> counts(sizes.begin(), sizes.end()), places(offsets.begin(), offsets.end() - 1);
        wait_for([&](MPI_Request* request) {
            LOCKSTEP_MPI(MPI_Iallgatherv, data, static_cast<int>(bytes), MPI_BYTE, all.data(), counts.data(),
                         places.data(), MPI_BYTE, communicator_, request);
        });
        return all;
    }
    if (bytes > 0) std::memcpy(all.data() + offsets[static_cast<std::size_t>(rank_)], data, bytes);
    for (std::size_t rank = 0; rank < sizes.size(); ++rank)
        broadcast(all.data() + offsets[rank], sizes[rank], static_cast<int>(rank));
    return all;
}

void MpiCommunicator::barrier() {
    const FlightScope noted(note(FlightKind::barrier, 0));
    wait_for([&](MPI_Request* request) { LOCKSTEP_MPI(MPI_Ibarrier, communicator_, request); });
}

}  // namespace lockstep::cluster
