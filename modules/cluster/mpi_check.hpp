// Wraps every MPI call: a failure becomes an Error with MPI's error string.
#pragma once

#include <mpi.h>

#include "base/error.hpp"

namespace lockstep::cluster {

inline void check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw fault_error("{} failed: {}", call, std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace lockstep::cluster

#define LOCKSTEP_MPI(function, ...) ::lockstep::cluster::check_mpi(function(__VA_ARGS__), #function)
