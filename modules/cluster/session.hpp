// This process as one MPI rank: initializes MPI, finds its node and permitted hardware, and ends so that all ranks
// return the same exit code and an error is printed once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cluster/host_group.hpp"
#include "cluster/nodes.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

// The MPI library's text about itself: versions and, of MPICH, the device; several lines.
std::string mpi_library();

// Aborts all ranks with this exit code at once; from any thread.
[[noreturn]] void abort_all_ranks(ExitCode code);

class Session {
  public:
    Session(int* argc, char*** argv);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int rank() const;
    int size() const;
    const RankPlace& place() const { return place_; }
    // The node's, identical on all its ranks, and what this process was allowed of it at its start.
    const std::shared_ptr<const Topology>& topology() const { return topology_; }
    const CpuSet& allowed() const { return allowed_; }
    // A group of all ranks with a private communicator.
    std::unique_ptr<HostGroup> make_world_group(const std::string& name = "world") const;

    // Runs `body` and returns the program's exit code, the same on all ranks: what `body` returned, or that of the
    // Error it threw. If every rank throws, the error is printed once; if only some do, the others are aborted within
    // seconds.
    int run(const std::function<int()>& body);

    // Called with the error that ends the run, before it does, on the rank that reports it.
    using FailureHandler = std::function<void(const Error& error)>;
    void set_failure_handler(FailureHandler handler) { failure_handler_ = std::move(handler); }

  private:
    RankPlace place_;
    std::shared_ptr<const Topology> topology_;
    CpuSet allowed_;
    FailureHandler failure_handler_;
    bool finished_ = false;
};

}  // namespace lockstep::cluster
