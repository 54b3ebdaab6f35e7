// Host-memory communication within a group of ranks: agreement and blocks of bytes. Device tensors go through a
// Communicator. All ranks of a group must make the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cluster {

enum class Reduce { sum, maximum, minimum };

// Bytes to or from another rank.
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
    // Each rank's block, all of one size, gathered on `root` in rank order (empty elsewhere).
    virtual std::vector<char> gather(const void* data, std::size_t bytes, int root) = 0;
    // Each rank's block, of any size, in rank order.
    virtual std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) = 0;
    // Posts all receives before any send, and completes them all. Messages between the same two ranks (or a rank and
    // itself) match in order; messages of 0 bytes are omitted on both sides.
    virtual void exchange(const std::vector<HostMessage>& receives, const std::vector<HostMessage>& sends) = 0;
    virtual void barrier() = 0;

    std::string broadcast_text(std::string text, int root);
    std::int64_t all_maximum(std::int64_t value);
    double all_sum(double value);
};

// A single rank: every operation is the identity. For commands without MPI, and for tests.
std::unique_ptr<HostGroup> make_solo_group();

}  // namespace lockstep::cluster
