#include "cluster/mpi_transfer.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "cluster/mpi_check.hpp"
#include "cluster/mpi_communicator.hpp"
#include "cluster/mpi_segments.hpp"
#include "cluster/mpi_wait.hpp"

namespace lockstep::cluster {
namespace {

// Synchronous sends: reliance on buffering hangs at once instead of some day.
bool synchronous_sends() {
    static const bool synchronous = [] {
        const char* text = std::getenv("LOCKSTEP_SYNCHRONOUS_SENDS");
        return text && std::strcmp(text, "1") == 0;
    }();
    return synchronous;
}

class MpiTransfer final : public Transfer {
  public:
    ~MpiTransfer() override {
        LOCKSTEP_ASSERT(requests.empty() || std::uncaught_exceptions() > 0);
        // The peer may never come. The send buffer may be read until this process ends.
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
    MpiRequests requests;
    bool receives = false;
};

}  // namespace

void start_send(MpiRequests& requests, void* data, std::size_t bytes, int to, int tag, MPI_Comm comm) {
    for_each_segment(data, bytes, 1, [&](char* segment, int count) {
        requests.push_back(MPI_REQUEST_NULL);
        if (synchronous_sends())
            LOCKSTEP_MPI(MPI_Issend, segment, count, MPI_BYTE, to, tag, comm, &requests.back());
        else
            LOCKSTEP_MPI(MPI_Isend, segment, count, MPI_BYTE, to, tag, comm, &requests.back());
    });
}

void start_receive(MpiRequests& requests, void* data, std::size_t bytes, int from, int tag, MPI_Comm comm) {
    for_each_segment(data, bytes, 1, [&](char* segment, int count) {
        requests.push_back(MPI_REQUEST_NULL);
        LOCKSTEP_MPI(MPI_Irecv, segment, count, MPI_BYTE, from, tag, comm, &requests.back());
    });
}

void wait_for_all(MpiRequests& requests) {
    if (requests.empty()) return;
    wait_for(static_cast<int>(requests.size()), requests.data());
    requests.clear();
}

std::unique_ptr<Transfer> MpiCommunicator::begin_send(Tensor values, int to, int tag) {
    group_->check_transfer(use_, to, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->sequence = group_->note(FlightKind::send, values.bytes(), to);
    start_send(transfer->requests, values.data(), values.bytes(), to, tag, group_->comm());
    return transfer;
}

std::unique_ptr<Transfer> MpiCommunicator::begin_receive(Tensor values, int from, int tag) {
    group_->check_transfer(use_, from, tag);
    auto transfer = std::make_unique<MpiTransfer>();
    transfer->receives = true;
    transfer->sequence = group_->note(FlightKind::receive, values.bytes(), from);
    start_receive(transfer->requests, values.data(), values.bytes(), from, tag, group_->comm());
    return transfer;
}

}  // namespace lockstep::cluster
