// What an operation takes on a machine that is only described: its peaks, its bandwidths, its links, and how well they
// are used. docs/planner.md has the equations.
#pragma once

#include <string>

#include "config/machine.hpp"
#include "cost/job.hpp"
#include "cost/pass_time.hpp"

namespace lockstep::cost {

class DescribedPrices final : public Prices {
  public:
    DescribedPrices(const config::Machine& machine, const Layout& layout, config::Precision precision)
        : machine_(machine), layout_(layout), precision_(precision) {}
    double seconds(const kernels::Operation& operation, bool of_head) const override;

  private:
    double scan_seconds(const kernels::Operation& scan) const;
    double message_seconds(const kernels::Operation& message) const;
    const config::Machine& machine_;
    const Layout& layout_;
    config::Precision precision_;
};

// All ranks of a tensor group add up `bytes` each, or gather and scatter them, which moves as much.
double tensor_reduction_seconds(const config::Machine& machine, const Layout& layout, double bytes);
// `bytes` of each rank to a rank so many places further.
double hand_on_seconds(const config::Machine& machine, const Layout& layout, double bytes, double places);

}  // namespace lockstep::cost
