// The time that one rank's part of a block, and of the head, takes for one micro-batch on a described device.
#pragma once

#include "config/machine.hpp"
#include "cost/job.hpp"

namespace lockstep::cost {

struct PassTime {
    double forward = 0, recomputation = 0, backward = 0;  // computing
    double tensor_forward = 0, tensor_recomputation = 0, tensor_backward = 0;
    double computing() const { return forward + recomputation + backward; }
    double tensor() const { return tensor_forward + tensor_recomputation + tensor_backward; }
    double total() const { return computing() + tensor(); }
};
PassTime block_time(const config::Machine& hardware, const Job& job, const ModelLoad& model, const Layout& layout);

// Logits, loss and their backward pass.
double head_seconds(const config::Machine& hardware, const Job& job, const ModelLoad& model, const Layout& layout);

// All ranks of a tensor group add up `bytes` each, or gather and scatter them, which moves as much.
double tensor_reduction_seconds(const config::Machine& hardware, const Layout& layout, double bytes);

double bytes_of(config::Precision precision);  // a number

}  // namespace lockstep::cost
