// The norm of all gradients, over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/communicator.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

// Which rank counts which elements.
struct NormPlan {
    std::vector<model::Piece> counted;  // of this rank's flat gradients: every parameter once over all ranks
    cluster::Communicator* communicator = nullptr;  // sums over these ranks; null: this rank alone
    // Ranks with the same sums, each over its own communicator; null: none. They agree on one result, since
    // communicators may add in different orders.
    cluster::Communicator* replicas = nullptr;
};

// The pieces that a rank counts: the owned ones that no other rank counts. Undivided parameters belong to the first
// tensor rank; `skip_table`: the embedding table is counted on another stage.
std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table);

// Counted elements of padding; they appear as zero gradients.
std::int64_t counted_padding(const model::ParameterLayout& layout, const NormPlan& plan);

// The sum of squares of all gradients and the number of zeros, in totals (fp64 [2]), as from sum_of_squares. Collective
// over the plan's communicators.
void sum_gradients(kernels::Backend& backend, Tensor gradients, const NormPlan& plan, Tensor totals);

}  // namespace lockstep::optim
