#include "cluster/mpi_transfer.hpp"

#include <cstdlib>
#include <cstring>

#include "cluster/mpi_check.hpp"
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

}  // namespace lockstep::cluster
