// What everything over MPI shares: a communicator of MPI for a group of ranks, and the group's notes in the flight
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
    // Collective over `ranks`, ranks of MPI_COMM_WORLD, ascending, this one among them. `name` is how a report of the
    // watchdog calls the group.
    MpiGroup(const std::vector<int>& ranks, const std::string& name);
    MpiGroup(const MpiGroup&) = delete;
    MpiGroup& operator=(const MpiGroup&) = delete;
    // MPI_Comm_free is collective in principle; while ranks unwind from an error some may never come, and the memory of
    // a communicator does not matter then. MPI_Finalize frees what is left.
    ~MpiGroup() = default;

    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(ranks_.size()); }
    // Notes a communication of this group in the flight recorder. `peer`: its rank in this group.
    std::uint64_t note(FlightKind kind, std::size_t bytes, int peer = -1, bool on_device = false) const;
    // In the sync mode `collective`: waits until all ranks are here, and warns after a long wait.
    void meet(const char* what, std::size_t bytes);
    // Faults where a message with `other` under `tag` is not possible.
    void check_transfer(Use use, int other, int tag) const;

  private:
    MPI_Comm comm_;
    std::vector<int> ranks_;  // of the world
    int flight_group_;
    int rank_ = 0;
    std::int64_t meetings_ = 0;
};

}  // namespace lockstep::cluster
