// What MPI reduces with. It has no 16-bit floating-point types: those have operations of our own.
#pragma once

#include <mpi.h>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

struct MpiReduction {
    MPI_Datatype type;
    MPI_Op operation;
};
MpiReduction mpi_reduction(Type type, Reduce operation);

// In place, in pieces that MPI's counts and its buffers can hold; waits.
void all_reduce_by_piece(void* data, std::size_t count, Type type, Reduce operation, MPI_Comm comm);

}  // namespace lockstep::cluster
