// Shared by everything over MPI: an MPI communicator for a group of ranks, and the group's entries in the flight
// recorder. Only cluster/ includes this.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/communicator.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::cluster {

std::vector<int> all_ranks();  // of MPI_COMM_WORLD

class MpiGroup {
  public:
    // Collective over `ranks`: world ranks, ascending, this one included. `name` labels the group in watchdog reports.
    MpiGroup(const std::vector<int>& ranks, const std::string& name);
    MpiGroup(const MpiGroup&) = delete;
    MpiGroup& operator=(const MpiGroup&) = delete;
    // MPI_Comm_free is formally collective; while unwinding, other ranks may never call it, and leaking a communicator
    // does not matter then. MPI_Finalize frees the rest.
    ~MpiGroup() = default;

    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(ranks_.size()); }
    // Records a communication in the flight recorder. `peer`: a rank of this group.
    std::uint64_t note(FlightKind kind, std::size_t bytes, int peer = -1, bool on_device = false) const;
    // With --sync collective: waits for all ranks, and warns after a long wait.
    void meet(const char* what, std::size_t bytes);
    // Faults if no message with `other` and `tag` is possible.
    void check_transfer(Use use, int other, int tag) const;

  private:
    MPI_Comm comm_;
    std::vector<int> ranks_;  // world ranks
    int flight_group_;
    int rank_ = 0;
    std::int64_t meetings_ = 0;
};

}  // namespace lockstep::cluster
