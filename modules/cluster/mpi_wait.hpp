// Waiting for MPI. MPI's own waits spin; where ranks share cores, that takes time from the rank being waited for. Here
// a rank yields after a few unsuccessful polls. Only cluster/ includes this.
#pragma once

#include <sched.h>

#include <vector>

#include "cluster/mpi_check.hpp"

namespace lockstep::cluster {

inline void wait_for(int count, MPI_Request* requests) {
    constexpr int looks_before_yielding = 50;
    std::vector<MPI_Status> statuses(static_cast<std::size_t>(count));
    int done = 0;
    for (int looks = 0;; ++looks) {
        check_mpi(MPI_Testall(count, requests, &done, statuses.data()), statuses.data(), count, "MPI_Testall");
        if (done) return;
        if (looks >= looks_before_yielding) static_cast<void>(sched_yield());
    }
}

// Starts a non-blocking operation with begin(&request) and waits for it.
template <class Begin>
void wait_for(Begin&& begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    begin(&request);
    wait_for(1, &request);
}

}  // namespace lockstep::cluster
