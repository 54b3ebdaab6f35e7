// Messages between two ranks over MPI.
#include <cstdlib>
#include <cstring>
#include <exception>

#include "cluster/mpi_check.hpp"
#include "cluster/mpi_communicator.hpp"
#include "cluster/mpi_pieces.hpp"
#include "cluster/mpi_wait.hpp"

namespace lockstep::cluster {
namespace {

constexpr int largest_tag = 32767;  // what every MPI has

// Whether a send ends only when its receive has begun: who relies on buffers hangs at once, and not one day.
bool synchronous_sends() {
    static const bool synchronous = [] {
        const char* text = std::getenv("LOCKSTEP_SYNCHRONOUS_SENDS");
        return text && std::strcmp(text, "1") == 0;
    }();
    return synchronous;
}

using Requests = std::vector<MPI_Request>;

void start_send(Requests& requests, void* data, std::size_t bytes, int to, int tag, MPI_Comm comm) {
    for_each_piece(data, bytes, 1, [&](char* piece, int count) {
        requests.push_back(MPI_REQUEST_NULL);
        if (synchronous_sends())
            LOCKSTEP_MPI(MPI_Issend, piece, count, MPI_BYTE, to, tag, comm, &requests.back());
        else
            LOCKSTEP_MPI(MPI_Isend, piece, count, MPI_BYTE, to, tag, comm, &requests.back());
    });
}

void start_receive(Requests& requests, void* data, std::size_t bytes, int from, int tag, MPI_Comm comm) {
    for_each_piece(data, bytes, 1, [&](char* piece, int count) {
        requests.push_back(MPI_REQUEST_NULL);
        LOCKSTEP_MPI(MPI_Irecv, piece, count, MPI_BYTE, from, tag, comm, &requests.back());
    });
}

void wait_for_all(Requests& requests) {
    if (requests.empty()) return;
    wait_for(static_cast<int>(requests.size()), requests.data());
    requests.clear();
}

class MpiTransfer final : public Transfer {
  public:
    ~MpiTransfer() override {
        LOCKSTEP_ASSERT(requests.empty() || std::uncaught_exceptions() > 0);
        // The other rank may never come. What is sent may still be read until this process ends.
        for (MPI_Request& request : requests) {
            if (receives) static_cast<void>(MPI_Cancel(&request));
            static_cast<void>(MPI_Request_free(&request));
        }
    }
    void wait() override {
        if (requests.empty()) return;
        const FlightScope noted(sequence);
        wait_for_all(requests);
    }

    std::uint64_t sequence = 0;  // in the flight recorder
    Requests requests;
    bool receives = false;
};

}  // namespace

void MpiCommunicator::check_transfer(int other, int tag) const {
    if (use_ != Use::transfers)
        throw fault_error("rank {} sends or receives on a communicator that was made for collectives only", rank_);
    if (other == rank_) throw fault_error("rank {} sends to or receives from itself", rank_);
    LOCKSTEP_ASSERT(other >= 0 && other < size_ && tag >= 0 && tag <= largest_tag);
}

std::unique_ptr<Transfer> MpiCommunicator::begin_send(Tensor values, int to, int tag) {
    check_transfer(to, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->sequence = note(FlightKind::send, values.bytes(), to);
    start_send(transfer->requests, values.data(), values.bytes(), to, tag, communicator_);
    return transfer;
}

std::unique_ptr<Transfer> MpiCommunicator::begin_receive(Tensor values, int from, int tag) {
    check_transfer(from, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->receives = true;
    transfer->sequence = note(FlightKind::receive, values.bytes(), from);
    start_receive(transfer->requests, values.data(), values.bytes(), from, tag, communicator_);
    return transfer;
}

void MpiCommunicator::exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) {
    std::size_t bytes = 0;
    for (const Block& block : receives) bytes += block.bytes;
    const FlightScope noted(note(FlightKind::exchange, bytes));
    Requests requests;
    for (const Block& block : receives) start_receive(requests, block.data, block.bytes, block.rank, 0, exchanges_);
    for (const Block& block : sends) start_send(requests, block.data, block.bytes, block.rank, 0, exchanges_);
    wait_for_all(requests);
}

}  // namespace lockstep::cluster
