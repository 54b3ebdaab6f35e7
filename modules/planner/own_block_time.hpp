// Seconds of one micro-batch through a block, and through the ends of the model, on one rank: every operation that the
// layers of model/ issue, in their order.
#pragma once

#include "cluster/process_grid.hpp"
#include "config/run_description.hpp"
#include "planner/own_prices.hpp"

namespace lockstep::planner {

struct OwnPassTime {
    double forward = 0, recomputation = 0, backward = 0;  // computing
    double tensor_forward = 0, tensor_backward = 0;       // waiting for the tensor group; the second with what
                                                          // is made again
    double context_forward = 0, context_backward = 0;     // waiting for the neighbour along the sequence
};

struct PassPlan {
    const config::ModelDescription& model;
    cluster::GridShape grid;
    double rows = 0;       // of a micro-batch on this rank
    double sequences = 0;  // of it
    double length = 0;     // tokens of a sequence on this rank
    bool divides_rows = false;
    bool full = false, selective = false;  // recomputation
};

OwnPassTime block_time(const PassPlan& plan, const OwnPrices& prices, const MessagePrices& messages);

struct HeadTime {
    double forward = 0, loss = 0, tensor = 0;  // the final norm; logits, loss and both gradients, in pieces
    double validation = 0;                     // logits and loss only
};
HeadTime head_time(const PassPlan& plan, const OwnPrices& prices, const MessagePrices& messages, bool on_gpu);

struct EmbeddingTime {
    double forward = 0, backward = 0, tensor_forward = 0, tensor_backward = 0;
};
EmbeddingTime embedding_time(const PassPlan& plan, const OwnPrices& prices, const MessagePrices& messages);

}  // namespace lockstep::planner
