// Seconds of one micro-batch through a block, and through the ends of the model, on one rank: every operation that the
// layers of model/ issue, in their order.
#pragma once

#include <set>
#include <string>

#include "cluster/process_grid.hpp"
#include "config/run_description.hpp"
#include "cost/own_prices.hpp"

namespace lockstep::cost {

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

// What model.frozen leaves of a block to train. A layer has a backward pass where it or something below it is trained,
// and up to its input where its norm or something below is.
struct BlockTraining {
    std::set<std::string> trained;  // names within the block, "mixer/query/weight"
    double trained_parameters = 0;  // elements of a rank of the tensor group
    bool below = true;              // something below the block is trained
    bool trains(const std::string& prefix) const;
    bool goes_back() const { return below || !trained.empty(); }
};
OwnPassTime block_time(const PassPlan& plan, const BlockTraining& training, const OwnPrices& prices,
                       const MessagePrices& messages);

struct HeadTraining {
    bool table = true, norm = true, below = true;  // the head's matrix; the final norm; something below them
};
struct HeadTime {
    double forward = 0, loss = 0, tensor = 0;  // the final norm; logits, loss and their gradients, in pieces
};
HeadTime head_time(const PassPlan& plan, const HeadTraining& training, const OwnPrices& prices,
                   const MessagePrices& messages, bool on_gpu);

struct EmbeddingTime {
    double forward = 0, backward = 0, tensor_forward = 0, tensor_backward = 0;
};
// trained: the table or the positions; else there is no backward pass.
EmbeddingTime embedding_time(const PassPlan& plan, bool trained, const OwnPrices& prices,
                             const MessagePrices& messages);

}  // namespace lockstep::cost
