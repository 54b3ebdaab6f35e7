// Messages of host memory among a group of ranks: what ranks agree on, and blocks of bytes. Tensors of a backend travel
// by a Communicator. Every rank of a group must make the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cluster {

enum class Reduce { sum, maximum, minimum };

// Bytes for another rank, or from it.
struct HostMessage {
    int rank;
    void* data;
    std::size_t bytes;
};

class HostGroup {
  public:
    HostGroup() = default;
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;
    virtual ~HostGroup() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // In place, in a fixed order for a given number of ranks.
    virtual void all_reduce(std::vector<double>& values, Reduce operation) = 0;
    virtual void all_reduce(std::vector<std::int64_t>& values, Reduce operation) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
    // Every rank's block of the same size, gathered on `root` in rank order (empty elsewhere).
    virtual std::vector<char> gather(const void* data, std::size_t bytes, int root) = 0;
    // Every rank's block of its own size, in rank order.
    virtual std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) = 0;
    // All receives are posted before any send, and all are waited for. Messages between the same two ranks, which may
    // be one rank and itself, match in order; those of 0 bytes are left out on both sides.
    virtual void exchange(const std::vector<HostMessage>& receives, const std::vector<HostMessage>& sends) = 0;
    virtual void barrier() = 0;

    std::string broadcast_text(std::string text, int root);
    std::int64_t all_maximum(std::int64_t value);
    double all_sum(double value);
};

// One rank alone: every operation is the identity. For commands that run without MPI, and for tests.
std::unique_ptr<HostGroup> make_solo_group();

}  // namespace lockstep::cluster
