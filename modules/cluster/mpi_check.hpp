// Wraps every MPI call: a failure becomes an Error with MPI's error string, one of a connection where it may be.
#pragma once

#include <mpi.h>

#include "base/error.hpp"

namespace lockstep::cluster {

// Whether an error of this class may come from another rank or the network. Wrong arguments have classes of their own;
// for a rank that is gone MPI 3 has none.
inline bool is_of_connection(int error_class) {
#ifdef MPIX_ERR_PROC_FAILED
    if (error_class == MPIX_ERR_PROC_FAILED) return true;
#endif
    return error_class == MPI_ERR_OTHER || error_class == MPI_ERR_INTERN || error_class == MPI_ERR_UNKNOWN;
}

inline void check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, error_class = MPI_ERR_UNKNOWN;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &error_class);
    const std::string reason(text, static_cast<std::size_t>(length));
    // The text of this class only says where to look: into the statuses of the requests, which nobody asks for.
    if (error_class == MPI_ERR_IN_STATUS)
        throw connection_error("{} failed: a message to or from another rank was lost", call);
    if (is_of_connection(error_class))
        throw connection_error("{} failed: {}; another rank or the network may be lost", call, reason);
    throw fault_error("{} failed: {}", call, reason);
}

}  // namespace lockstep::cluster

#define LOCKSTEP_MPI(function, ...) ::lockstep::cluster::check_mpi(function(__VA_ARGS__), #function)
