// Collectives and messages of device tensors behind one interface, whatever the transport. Host data goes through a
// HostGroup. All ranks of a communicator must make the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "device/tensor.hpp"

namespace lockstep::cluster {

// A pending point-to-point message. wait() before destruction, except while unwinding.
class Transfer {
  public:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer() = default;
    // Backend work issued afterwards sees the received tensor, or may overwrite the sent one.
    virtual void wait() = 0;
};

// Bytes that a communicator reduces over MPI concurrently, at most; the rest is queued until finish_collectives. MPI
// allocates up to twice as much.
constexpr std::size_t most_reduced_at_once = std::size_t{32} << 20;

// One message of an exchange: sent to `rank`, or received from it.
struct Message {
    Tensor values;
    int rank;
    bool sent;
};

class Communicator {
  public:
    Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    virtual ~Communicator() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // In place, in a fixed order for a given number of ranks. `values` is memory of the device that this communicator
    // was made for; ordered with its backend's stream of work. bf16 and fp16 partial sums are rounded to their type.
    virtual void all_reduce(Tensor values, Reduce operation) = 0;
    // Split-phase: backend work issued between the two calls may overlap the collective and must not touch `values`.
    // finish_collectives completes all that were begun, in the order of their beginning.
    virtual void begin_all_reduce(Tensor values, Reduce operation) = 0;
    // A flat tensor cut at `cuts` (size() + 1 element offsets, ascending, from 0 to its count; parts may be empty and
    // of any size): part r belongs to rank r. This rank's part becomes the sum over ranks; the other parts are
    // undefined afterwards. Types as all_reduce.
    virtual void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) = 0;
    // Every rank receives all parts from their owners. Any type.
    virtual void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) = 0;
    virtual void finish_collectives() = 0;

    // Point-to-point, ordered with the backend's work like all_reduce. Both sides give the same tag (0 … 32767) and the
    // same bytes; messages with equal source, destination and tag do not overtake each other. Not every transport has
    // tags, so both sides must begin the messages of one direction in the same order. Between ring neighbours, messages
    // never wait for those of the other direction, nor a rank's sends for its receives. Sending to oneself is a fault.
    virtual std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) = 0;
    virtual std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) = 0;
    // Messages that wait for none of each other, so that all ranks may send and receive whatever the pattern. All ranks
    // begin an exchange, in the same order; one may have no messages. Messages from one rank to another arrive in the
    // order of both lists; tags as above.
    virtual std::unique_ptr<Transfer> begin_exchange(const std::vector<Message>& messages, int tag);
};

// A single rank: collectives are the identity, messages are faults.
std::unique_ptr<Communicator> make_solo_communicator();

// What a communicator is for. All can do collectives; begin_exchange is a fault where it is for these alone, begin_send
// and begin_receive where it is not for `transfers`, which take resources of their own.
enum class Use { collectives, exchanges, transfers };

// Makes communicators of groups of ranks, all over the same transport.
class CommunicatorSource {
  public:
    CommunicatorSource() = default;
    CommunicatorSource(const CommunicatorSource&) = delete;
    CommunicatorSource& operator=(const CommunicatorSource&) = delete;
    virtual ~CommunicatorSource() = default;
    // Collective over `ranks` (world ranks, ascending, this one included), whose indices become their ranks. For one
    // rank: the solo communicator. `name` labels the group in reports.
    virtual std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use use = Use::collectives,
                                               const std::string& name = "ranks") = 0;
    virtual const std::string& carrier() const = 0;  // "MPI", "NCCL 2.28.3", …
};

// For tensors in host memory.
std::unique_ptr<CommunicatorSource> make_mpi_communicator_source();

}  // namespace lockstep::cluster
