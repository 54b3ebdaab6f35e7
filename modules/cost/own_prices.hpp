// What the operations and messages of our own program cost on one rank of a run: the rates of a calibration, brought to
// the threads that the rank has there.
#pragma once

#include <cstdint>

#include "config/grid.hpp"
#include "config/machine.hpp"
#include "cost/pass_time.hpp"

namespace lockstep::cost {

// What a run with precision.compute = `compute` computes in there, time and memory alike: on a CPU calibrated as having
// no bf16, fp32 instead. Usage error: fp16 on a CPU.
config::Precision precision_on(const config::Machine& machine, config::Precision compute);

// Of a rank of the grid. Ranks that share a layer, a sequence or gradients form groups, `stride` ranks apart, which lie
// behind each other over the nodes: inside a node where whole groups fill it, partly where each node has equally many
// ranks of each, else on the network.
class CalibratedPrices final : public Prices {
  public:
    // Usage error: precision_on's, and where the machine has no rates of the type.
    CalibratedPrices(const config::Machine& machine, config::Precision compute, const config::Grid& grid,
                     std::int64_t ranks_per_node);

    double seconds(const kernels::Operation& operation, bool of_head) const override;
    // An operation that moves so many bytes at `gb_per_second`.
    double moved(double bytes, double gb_per_second) const;
    double send(double bytes, std::int64_t stride) const;
    double all_reduce(double bytes, std::int64_t ranks, std::int64_t stride) const;     // of activations
    double reduce_bucket(double bytes, std::int64_t ranks, std::int64_t stride) const;  // of gradients
    double scatter(double bytes, std::int64_t ranks, std::int64_t stride) const;
    double gather(double bytes, std::int64_t ranks, std::int64_t stride) const;

    const config::PrecisionRates::Memory& memory() const { return rates_.memory; }
    double element() const { return element_; }  // bytes of a number
    double turns() const { return turns_; }      // ranks that take turns on a core

  private:
    double message_seconds(const kernels::Operation& message) const;
    double collective(double bytes, double passes, double gb_per_second, std::int64_t ranks, std::int64_t stride) const;
    double ranks_of_node(std::int64_t ranks, std::int64_t stride) const;
    const config::Machine& machine_;
    const config::PrecisionRates& rates_;
    config::Grid grid_;
    double ranks_per_node_, element_, turns_ = 1, message_turns_ = 1;
    double operation_, speed_, bandwidth_;
};

}  // namespace lockstep::cost
