// The norm of all gradients, put together from those of the ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/communicator.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

// Who adds up what.
struct NormPlan {
    std::vector<model::Piece> counted;  // of this rank's flat gradients: every parameter once over all ranks
    cluster::Communicator* communicator = nullptr;  // over which the sums are added; null: this rank alone
    // Ranks that add up the same numbers, each over a communicator of its own; null: none. They agree on one result,
    // since other communicators may add in another order.
    cluster::Communicator* replicas = nullptr;
};

// The pieces that a rank counts: of what it owns, what no other rank counts. Undivided parameters are the first tensor
// rank's; `skip_table`: the embedding's table is counted on another stage.
std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table);

// Counted elements that belong to no parameter; they are counted as zero gradients.
std::int64_t counted_padding(const model::ParameterLayout& layout, const NormPlan& plan);

// The sum of all gradients' squares and the number of zeros among them, in totals (fp64 [2]), as sum_of_squares has
// them. Collective over the plan's communicators.
void sum_gradients(kernels::Backend& backend, Tensor gradients, const NormPlan& plan, Tensor totals);

}  // namespace lockstep::optim
