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

// A message between two ranks, under way. Must be waited for before it is destroyed, unless an exception unwinds.
class Transfer {
  public:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;
    // What the backend is given afterwards sees a received tensor, or may overwrite a sent one.
    virtual void wait() = 0;
};

// Bytes that a communicator reduces over MPI at one time, at most: what is begun beyond them waits until
// finish_collectives. MPI allocates up to twice as much.
constexpr std::size_t most_reduced_at_once = std::size_t{32} << 20;

class Communicator {
  public:
    Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    virtual ~Communicator() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // In place, in a fixed order for a given number of ranks. `values` is memory of the device that this communicator
    // was made for, ordered with the work of its backend: after what was issued before, before what is issued after.
    // Partial results of bf16 and fp16 are rounded to their type.
    virtual void all_reduce(Tensor values, Reduce operation) = 0;
    // The same in two parts: what the backend is given between them may run beside the collective, and must not touch
    // `values`. finish_collectives ends all that were begun; they run in the order of their beginning.
    virtual void begin_all_reduce(Tensor values, Reduce operation) = 0;
    // A flat tensor cut at `cuts` (size() + 1 offsets in elements, ascending, the first 0, the last its count; parts
    // may be empty and of any size): part r belongs to rank r. This rank's part becomes the sum over the ranks; the
    // other parts are undefined afterwards. Types as all_reduce.
    virtual void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) = 0;
    // Every part becomes its owner's. Any type.
    virtual void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) = 0;
    virtual void finish_collectives() = 0;

    // Between two ranks of this communicator, ordered with the backend's work like all_reduce. Both sides name the same
    // tag, 0 … 32767, and the same bytes; messages of one direction between two ranks with the same tag arrive in the
    // order they were sent. Not every carrier can look at tags: both sides begin the messages of one direction in the
    // same order. Between neighbours of the ring of ranks a message never waits for one of the other direction, nor a
    // rank's sends for its receives. A fault between a rank and itself.
    virtual std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) = 0;
    virtual std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) = 0;

    // Host memory from here on.
    virtual void all_reduce(std::vector<double>& values, Reduce operation) = 0;
    virtual void all_reduce(std::vector<std::int64_t>& values, Reduce operation) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
    // Every rank's block of the same size, gathered on `root` in rank order (empty elsewhere).
    virtual std::vector<char> gather(const void* data, std::size_t bytes, int root) = 0;
    // Every rank's block of its own size, in rank order.
    virtual std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) = 0;
    // All receives are posted before any send, and all are waited for. Messages between the same two ranks, which may
    // be one rank and itself, match in order; those of 0 bytes are left out on both sides.
    struct Block {
        int rank;
        void* data;
        std::size_t bytes;
    };
    virtual void exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) = 0;
    virtual void barrier() = 0;

    std::string broadcast_text(std::string text, int root);
    std::int64_t all_maximum(std::int64_t value);
    double all_sum(double value);
};

// One rank alone: every operation is the identity. For commands that run without MPI and for tests.
std::unique_ptr<Communicator> make_solo_communicator();

// What a communicator is made for. Every one can do all collectives; begin_send and begin_receive are faults where it
// was not made for transfers, which take resources of their own.
enum class Use { collectives, transfers };

// Makes communicators of groups of ranks, all by the same carrier.
class CommunicatorSource {
  public:
    CommunicatorSource() = default;
    CommunicatorSource(const CommunicatorSource&) = delete;
    CommunicatorSource& operator=(const CommunicatorSource&) = delete;
    virtual ~CommunicatorSource() = default;
    // Collective over `ranks` (ranks of the world, ascending, this one among them), whose places in the list become
    // their ranks. One rank: the solo communicator. `name` is how a report calls the group.
    virtual std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use use = Use::collectives,
                                               const std::string& name = "ranks") = 0;
    virtual const std::string& carrier() const = 0;  // "MPI", "NCCL 2.28.3", …
};

// For tensors in host memory.
std::unique_ptr<CommunicatorSource> make_mpi_communicator_source();

}  // namespace lockstep::cluster
