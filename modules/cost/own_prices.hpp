// What the operations of our own program cost on one rank of a run: the rates of a calibration, brought to the threads
// that the rank has there.
#pragma once

#include <cstdint>
#include <string>

#include "config/grid.hpp"
#include "config/machine.hpp"
#include "kernels/operation_work.hpp"

namespace lockstep::cost {

// How the ranks of a node share its cores.
struct CoreShare {
    double threads = 1;  // of a rank
    double turns = 1;    // ranks that take turns on a core
};
CoreShare share_cores(const config::Machine& machine, std::int64_t ranks_per_node);

// What a run with precision.compute = `compute` computes in there, time and memory alike: on a CPU calibrated as having
// no bf16, fp32 in its stead. Usage error: fp16 on a CPU.
config::Precision precision_on(const config::Machine& machine, config::Precision compute);

class OwnPrices {
  public:
    // Usage error: precision_on's, and where the machine has no rates of the type.
    OwnPrices(const config::Machine& machine, const CoreShare& share, config::Precision compute);

    // of_head: its products are at the head's rates. Not of messages.
    double seconds(const kernels::Operation& operation, bool of_head) const;
    // An operation that moves so many bytes at `gb_per_second`.
    double moved(double bytes, double gb_per_second) const;

    const config::PrecisionRates::Memory& memory() const { return rates_.memory; }
    double element() const { return element_; }

  private:
    const config::PrecisionRates& rates_;
    double element_, operation_, speed_, bandwidth_;
};

// Messages between ranks. Groups of `ranks`, `stride` apart, lie behind each other over the nodes: inside a node where
// whole groups fill it, partly where each node has equally many ranks of each, else on the network.
class MessagePrices {
  public:
    MessagePrices(const config::Machine& machine, const CoreShare& share, std::int64_t ranks_per_node,
                  std::int64_t all_ranks, double element);
    // Of a message among the ranks of a layer, or along a sequence.
    double seconds(const kernels::Operation& message, const config::Grid& grid) const;
    double send(double bytes, std::int64_t stride) const;
    double all_reduce(double bytes, std::int64_t ranks, std::int64_t stride) const;     // of activations
    double reduce_bucket(double bytes, std::int64_t ranks, std::int64_t stride) const;  // of gradients
    double scatter_bucket(double bytes, std::int64_t ranks, std::int64_t stride) const;
    double gather(double bytes, std::int64_t ranks, std::int64_t stride) const;
    double scatter(double bytes, std::int64_t ranks, std::int64_t stride) const;  // of activations

  private:
    double collective(double bytes, double passes, double gb_per_second, std::int64_t ranks, std::int64_t stride) const;
    double ranks_of_node(std::int64_t ranks, std::int64_t stride) const;
    const config::Machine& machine_;
    bool one_node_;
    double turns_, ranks_per_node_, activations_;
};

}  // namespace lockstep::cost
