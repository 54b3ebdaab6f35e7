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

}  // namespace lockstep::cluster
