// MPI reduction operations. MPI has no 16-bit floating-point types: bf16 and fp16 use user-defined ones.
#pragma once

#include <mpi.h>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

struct MpiReduction {
    MPI_Datatype type;
    MPI_Op operation;
};
MpiReduction mpi_reduction(Type type, Reduce operation);

// In place, segmented to fit MPI's counts and buffers; blocking.
void all_reduce_segmented(void* data, std::size_t count, Type type, Reduce operation, MPI_Comm comm);

}  // namespace lockstep::cluster
