#include "cluster/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/mpi_communicator.hpp"
#include "device/sync.hpp"

namespace lockstep::cluster {
namespace {

// MPI counts are ints; larger messages go in pieces of this many bytes.
constexpr std::size_t largest_piece = std::size_t{1} << 28;

MPI_Op mpi_operation(Reduce operation) {
    switch (operation) {
        case Reduce::sum:
            return MPI_SUM;
        case Reduce::maximum:
            return MPI_MAX;
        case Reduce::minimum:
            return MPI_MIN;
    }
    throw fault_error("unknown reduction");
}

void all_reduce_pieces(void* data, std::size_t count, std::size_t element, MPI_Datatype type, Reduce operation,
                       MPI_Comm comm) {
    const std::size_t step = largest_piece / element;
    for (std::size_t first = 0; first < count; first += step)
        LOCKSTEP_MPI(MPI_Allreduce, MPI_IN_PLACE, static_cast<char*>(data) + first * element,
                     static_cast<int>(std::min(step, count - first)), type, mpi_operation(operation), comm);
}

MPI_Datatype mpi_type(Type type) {
    switch (type) {
        case Type::fp32:
            return MPI_FLOAT;
        case Type::fp64:
            return MPI_DOUBLE;
        case Type::int32:
            return MPI_INT32_T;
        default:
            throw fault_error("a tensor of {} cannot be reduced between ranks", type_name(type));
    }
}

// How long a rank waits in the sync mode `collective` before it says so.
constexpr double first_word_seconds = 5;

class SoloCommunicator final : public Communicator {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void all_reduce(Tensor, Reduce) override {}
    void begin_all_reduce(Tensor, Reduce) override {}
    void finish_all_reduces() override {}
    void all_reduce(std::vector<double>&, Reduce) override {}
    void all_reduce(std::vector<std::int64_t>&, Reduce) override {}
    void broadcast(void*, std::size_t, int) override {}
    std::vector<char> gather(const void* data, std::size_t bytes, int) override {
        const char* first = static_cast<const char*>(data);
        return {first, first + bytes};
    }
    void barrier() override {}
    void exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) override {
        LOCKSTEP_ASSERT(receives.empty() && sends.empty());
    }
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override { return gather(data, bytes, 0); }
};

}  // namespace

std::string Communicator::broadcast_text(std::string text, int root) {
    std::uint64_t bytes = text.size();
    broadcast(&bytes, sizeof bytes, root);
    text.resize(bytes);
    broadcast(text.data(), bytes, root);
    return text;
}

std::int64_t Communicator::all_maximum(std::int64_t value) {
    std::vector<std::int64_t> values = {value};
    all_reduce(values, Reduce::maximum);
    return values[0];
}

double Communicator::all_sum(double value) {
    std::vector<double> values = {value};
    all_reduce(values, Reduce::sum);
    return values[0];
}

std::unique_ptr<Communicator> make_solo_communicator() {
    return std::make_unique<SoloCommunicator>();
}

MpiCommunicator::MpiCommunicator(MPI_Comm parent) {
    LOCKSTEP_MPI(MPI_Comm_dup, parent, &communicator_);
    LOCKSTEP_MPI(MPI_Comm_set_errhandler, communicator_, MPI_ERRORS_RETURN);
    LOCKSTEP_MPI(MPI_Comm_rank, communicator_, &rank_);
    LOCKSTEP_MPI(MPI_Comm_size, communicator_, &size_);
}

MpiCommunicator::~MpiCommunicator() {
    // MPI_Comm_free is collective in principle; while ranks unwind from an error some may never come, and the memory of
    // a communicator does not matter then. MPI_Finalize frees what is left.
}

void MpiCommunicator::all_reduce(Tensor values, Reduce operation) {
    meet("all-reduce", values.bytes());
    all_reduce_pieces(values.data(), static_cast<std::size_t>(values.count()), type_bytes(values.type()),
                      mpi_type(values.type()), operation, communicator_);
    meet("end of the all-reduce", values.bytes());
}

void MpiCommunicator::begin_all_reduce(Tensor values, Reduce operation) {
    if (sync_mode() == SyncMode::collective) return all_reduce(values, operation);
    const std::size_t element = type_bytes(values.type()), step = largest_piece / element;
    const auto count = static_cast<std::size_t>(values.count());
    for (std::size_t first = 0; first < count; first += step) {
        under_way_.push_back(MPI_REQUEST_NULL);
        LOCKSTEP_MPI(MPI_Iallreduce, MPI_IN_PLACE, static_cast<char*>(values.data()) + first * element,
                     static_cast<int>(std::min(step, count - first)), mpi_type(values.type()), mpi_operation(operation),
                     communicator_, &under_way_.back());
    }
}

void MpiCommunicator::finish_all_reduces() {
    if (under_way_.empty()) return;
    LOCKSTEP_MPI(MPI_Waitall, static_cast<int>(under_way_.size()), under_way_.data(), MPI_STATUSES_IGNORE);
    under_way_.clear();
}

void MpiCommunicator::meet(const char* what, std::size_t bytes) {
    if (sync_mode() != SyncMode::collective) return;
    ++met_;
    MPI_Request request = MPI_REQUEST_NULL;
    LOCKSTEP_MPI(MPI_Ibarrier, communicator_, &request);
    double next_word = seconds_now() + first_word_seconds;
    for (int done = 0; !done;) {
        LOCKSTEP_MPI(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
        if (done || seconds_now() < next_word) continue;
        log::warning("rank {} waits for the other ranks at operation {}, {} of {}", rank_, met_, what,
                     human_bytes(static_cast<double>(bytes)));
        next_word += 10 * first_word_seconds;
    }
}

void MpiCommunicator::all_reduce(std::vector<double>& values, Reduce operation) {
    all_reduce_pieces(values.data(), values.size(), sizeof(double), MPI_DOUBLE, operation, communicator_);
}

void MpiCommunicator::all_reduce(std::vector<std::int64_t>& values, Reduce operation) {
    all_reduce_pieces(values.data(), values.size(), sizeof(std::int64_t), MPI_INT64_T, operation, communicator_);
}

void MpiCommunicator::broadcast(void* data, std::size_t bytes, int root) {
    for (std::size_t first = 0; first < bytes; first += largest_piece)
        LOCKSTEP_MPI(MPI_Bcast, static_cast<char*>(data) + first,
                     static_cast<int>(std::min(largest_piece, bytes - first)), MPI_BYTE, root, communicator_);
}

std::vector<char> MpiCommunicator::gather(const void* data, std::size_t bytes, int root) {
    std::vector<char> all(rank_ == root ? bytes * static_cast<std::size_t>(size_) : 0);
    if (bytes == 0) return all;
    const std::size_t step = largest_piece;
    if (bytes <= step) {
        LOCKSTEP_MPI(MPI_Gather, data, static_cast<int>(bytes), MPI_BYTE, all.data(), static_cast<int>(bytes), MPI_BYTE,
                     root, communicator_);
        return all;
    }
    std::vector<char> piece(rank_ == root ? step * static_cast<std::size_t>(size_) : 0);
    for (std::size_t first = 0; first < bytes; first += step) {
        const std::size_t now = std::min(step, bytes - first);
        LOCKSTEP_MPI(MPI_Gather, static_cast<const char*>(data) + first, static_cast<int>(now), MPI_BYTE, piece.data(),
                     static_cast<int>(now), MPI_BYTE, root, communicator_);
        if (rank_ != root) continue;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
            std::memcpy(all.data() + rank * bytes + first, piece.data() + rank * now, now);
    }
    return all;
}

void MpiCommunicator::barrier() {
    LOCKSTEP_MPI(MPI_Barrier, communicator_);
}

void MpiCommunicator::exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) {
    std::vector<MPI_Request> requests;
    const auto for_each_piece = [&](const std::vector<Block>& blocks, auto&& post) {
        for (const Block& block : blocks) {
            LOCKSTEP_ASSERT(block.rank != rank_);
            for (std::size_t first = 0; first < block.bytes; first += largest_piece) {
                requests.push_back(MPI_REQUEST_NULL);
                post(block.rank, static_cast<char*>(block.data) + first,
                     static_cast<int>(std::min(largest_piece, block.bytes - first)), &requests.back());
            }
        }
    };
    constexpr int tag = 0;
    for_each_piece(receives, [&](int rank, char* data, int bytes, MPI_Request* request) {
        LOCKSTEP_MPI(MPI_Irecv, data, bytes, MPI_BYTE, rank, tag, communicator_, request);
    });
    for_each_piece(sends, [&](int rank, char* data, int bytes, MPI_Request* request) {
        LOCKSTEP_MPI(MPI_Isend, data, bytes, MPI_BYTE, rank, tag, communicator_, request);
    });
    LOCKSTEP_MPI(MPI_Waitall, static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

std::vector<char> MpiCommunicator::all_gather_bytes(const void* data, std::size_t bytes) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(size_), 0);
    sizes[static_cast<std::size_t>(rank_)] = static_cast<std::int64_t>(bytes);
    all_reduce(sizes, Reduce::sum);
    std::int64_t total = 0;
    for (const auto size : sizes) total += size;
    std::vector<char> all(static_cast<std::size_t>(total));
    if (total <= std::numeric_limits<int>::max()) {
        std::vector<int> counts, places;
        int place = 0;
        for (const auto size : sizes) {
            counts.push_back(static_cast<int>(size));
            places.push_back(place);
            place += static_cast<int>(size);
        }
        LOCKSTEP_MPI(MPI_Allgatherv, data, static_cast<int>(bytes), MPI_BYTE, all.data(), counts.data(), places.data(),
                     MPI_BYTE, communicator_);
        return all;
    }
    char* place = all.data();
    for (int rank = 0; rank < size_; ++rank) {
        const auto size = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
        if (rank == rank_ && size > 0) std::memcpy(place, data, size);
        broadcast(place, size, rank);
        place += size;
    }
    return all;
}

}  // namespace lockstep::cluster
