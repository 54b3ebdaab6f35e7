// This process as one MPI rank: starts MPI, names itself, finds its node and what of it the launcher allows, and ends
// so that all ranks leave with one exit code and an error is printed once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cluster/host_group.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

struct RankPlace {
    std::string host;
    int node = 0;        // nodes are numbered in the order of their lowest rank
    int local_rank = 0;  // among the ranks of this node
    int local_ranks = 1;
};

// Ends all ranks with this exit code, whatever they are doing; from any thread.
[[noreturn]] void end_all_ranks(ExitCode code);

class Session {
  public:
    Session(int* argc, char*** argv);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int rank() const;
    int size() const;
    const RankPlace& place() const { return place_; }
    // The node's, the same on all its ranks, and what of it this process was allowed when it started.
    const std::shared_ptr<const Topology>& topology() const { return topology_; }
    const CpuSet& allowed() const { return allowed_; }
    // A group of all ranks whose messages meet no other group's.
    std::unique_ptr<HostGroup> make_world_group(const std::string& name = "world") const;

    // Runs `body` on this rank and returns the program's exit code, the same on every rank: what `body` returned, or
    // the code of the Error it threw. When every rank throws, the sentence is printed once; when only some do, the
    // others are ended within seconds.
    int run(const std::function<int()>& body);

    // What a rank that failed alone does before it ends the others, since rank 0 no longer can.
    using LastWords = std::function<void(ExitCode code, const std::string& sentence)>;
    void set_last_words(LastWords last_words) { last_words_ = std::move(last_words); }

  private:
    RankPlace place_;
    std::shared_ptr<const Topology> topology_;
    CpuSet allowed_;
    LastWords last_words_;
    bool finished_ = false;
};

}  // namespace lockstep::cluster
