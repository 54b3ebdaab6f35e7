// Collectives and messages of a backend's tensors: one interface, whatever carries it. What ranks agree on in host
// memory goes through a HostGroup. Every rank of a communicator must make the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "device/tensor.hpp"

namespace lockstep::cluster {

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
};

// One rank alone: every collective is the identity, messages are faults.
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
