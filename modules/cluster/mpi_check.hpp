// Wraps every MPI call: a failure becomes an Error with MPI's error string.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace lockstep::cluster {

// Whether an error of this class may mean that another rank or the network is gone. Wrong arguments and messages that
// do not fit have classes of their own; MPI libraries have none, or one of several names, for a rank that is gone.
inline bool may_be_connection_error(int error_class) {
    constexpr std::array classes = {
        MPI_ERR_OTHER,
        MPI_ERR_INTERN,
        MPI_ERR_UNKNOWN,
        MPI_ERR_IN_STATUS,  // where no status says more
#ifdef MPIX_ERR_PROC_FAILED
        MPIX_ERR_PROC_FAILED,
#endif
#ifdef MPIX_ERR_PROC_FAILED_PENDING
        MPIX_ERR_PROC_FAILED_PENDING,
#endif
#ifdef MPI_ERR_PROC_ABORTED
        MPI_ERR_PROC_ABORTED,
#endif
#ifdef MPI_ERR_PROC_FAILED
        MPI_ERR_PROC_FAILED,
#endif
#ifdef MPI_ERR_PROC_FAILED_PENDING
        MPI_ERR_PROC_FAILED_PENDING,
#endif
    };
    return std::find(classes.begin(), classes.end(), error_class) != classes.end();
}

inline int error_class_of(int code) {
    int error_class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &error_class);
    return error_class;
}

inline void check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::string reason(text, static_cast<std::size_t>(length));
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    if (may_be_connection_error(error_class_of(code)))
        throw connection_error("{} failed: {}; another rank or the network may be gone", call, reason);
    throw fault_error("{} failed: {}", call, reason);
}

// The same for a call that has completed several requests.
inline void check_mpi(int code, const MPI_Status* statuses, int count, const char* call) {
    if (code == MPI_SUCCESS) return;
    if (error_class_of(code) == MPI_ERR_IN_STATUS)
        for (const MPI_Status* status = statuses; status != statuses + count; ++status)
            if (error_class_of(status->MPI_ERROR) != MPI_ERR_PENDING) check_mpi(status->MPI_ERROR, call);
    check_mpi(code, call);
}

}  // namespace lockstep::cluster

#define LOCKSTEP_MPI(function, ...) ::lockstep::cluster::check_mpi(function(__VA_ARGS__), #function)
