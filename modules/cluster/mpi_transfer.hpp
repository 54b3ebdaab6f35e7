// Point-to-point messages over MPI, segmented to fit MPI's counts. Only cluster/ includes this.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace lockstep::cluster {

using MpiRequests = std::vector<MPI_Request>;

// Both append their requests to the list.
void start_send(MpiRequests& requests, void* data, std::size_t bytes, int to, int tag, MPI_Comm comm);
void start_receive(MpiRequests& requests, void* data, std::size_t bytes, int from, int tag, MPI_Comm comm);
void wait_for_all(MpiRequests& requests);

}  // namespace lockstep::cluster
