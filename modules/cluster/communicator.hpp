// Communication between ranks: one interface, whatever carries it. Every rank of a communicator must make the same
// calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/tensor.hpp"

namespace lockstep::cluster {

enum class Reduce { sum, maximum, minimum };

class Communicator {
  public:
    Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    virtual ~Communicator() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // In place, in a fixed order for a given number of ranks. `values` is memory of the device that this communicator
    // was made for (fp32, fp64, int32), ordered with the work of its backend: after what was issued before, before what
    // is issued after.
    virtual void all_reduce(Tensor values, Reduce operation) = 0;
    // The same in two parts: what the backend is given between them may run beside the reduction, and must not touch
    // `values`. finish_all_reduces ends all that were begun.
    virtual void begin_all_reduce(Tensor values, Reduce operation) = 0;
    virtual void finish_all_reduces() = 0;
    virtual void all_reduce(std::vector<double>& values, Reduce operation) = 0;
    virtual void all_reduce(std::vector<std::int64_t>& values, Reduce operation) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
    // Every rank's block of the same size, gathered on `root` in rank order (empty elsewhere).
    virtual std::vector<char> gather(const void* data, std::size_t bytes, int root) = 0;
    virtual void barrier() = 0;

    // Host memory: all receives are posted first, then all sends, then waited for. Sizes may be 0 (left out) or beyond
    // 2 GiB. Messages between the same two ranks match in order; none to oneself.
    struct Block {
        int rank;
        void* data;
        std::size_t bytes;
    };
    virtual void exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) = 0;
    // Every rank's block of its own size, in rank order.
    virtual std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) = 0;

    std::string broadcast_text(std::string text, int root);
    std::int64_t all_maximum(std::int64_t value);
    double all_sum(double value);
};

// One rank alone: every operation is the identity. For commands that run without MPI and for tests.
std::unique_ptr<Communicator> make_solo_communicator();

}  // namespace lockstep::cluster
