// A list of operations and messages, priced: what the operations of one micro-batch take on one rank, whoever made the
// list and whatever the machine.
#pragma once

#include <cstdint>
#include <functional>

#include "model/count.hpp"

namespace lockstep::cost {

// Seconds of one micro-batch through a block, or through an end of the model.
struct PassTime {
    double forward = 0, loss = 0, recomputation = 0, backward = 0;  // computing
    double tensor_forward = 0, tensor_loss = 0;                     // waiting for the ranks that share the layer
    double tensor_recomputation = 0, tensor_backward = 0;
    double context_forward = 0, context_backward = 0;  // waiting for the neighbour along the sequence
    double computing() const { return forward + loss + recomputation + backward; }
    double tensor() const { return tensor_forward + tensor_loss + tensor_recomputation + tensor_backward; }
    double context() const { return context_forward + context_backward; }
    PassTime& add(const PassTime& other, double times = 1);
};

// What one operation, or one message, takes on a machine.
class Prices {
  public:
    Prices() = default;
    Prices(const Prices&) = delete;
    Prices& operator=(const Prices&) = delete;
    virtual ~Prices() = default;
    // of_head: the operation is one of the loss, whose matrix is many times as large as a layer's.
    virtual double seconds(const kernels::Operation& operation, bool of_head) const = 0;
};

PassTime pass_time(const model::Count& count, const Prices& prices);

// How long the ranks along a sequence wait for each other in one step, where a state goes from rank to rank: each
// begins one block behind the one before, and the slowest block decides. Once a step; if all ranks meet in other
// blocks, once for each run of such blocks between them, in every micro-batch; in_turn: in every micro-batch too, since
// none is begun ahead. seconds(number): of a block.
double context_fill(const config::ModelDescription& model, std::int64_t ranks, std::int64_t micro_batches, bool in_turn,
                    const std::function<double(std::int64_t number)>& seconds);

}  // namespace lockstep::cost
