// The norm of all gradients, over all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/communicator.hpp"
#include "device/memory.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

// Which rank counts which elements.
struct NormPlan {
    std::vector<model::Piece> counted;  // of this rank's flat gradients: every parameter once over all ranks
    cluster::Communicator* communicator = nullptr;  // sums over these ranks; null: this rank alone
    // Ranks with the same sums, each over its own communicator; null: none. They agree on one result, since
    // communicators may add in different orders.
    cluster::Communicator* replicas = nullptr;  // not in blocks

    // Sums of blocks of each parameter, added up in an order that does not depend on how replicas divide the gradients;
    // pieces then begin and end with blocks or parameters, and padding is not counted. `communicator` has the ranks of
    // one replica, `owners` those that divide this rank's gradients (null: it has them all).
    bool in_blocks = false;
    cluster::Communicator* owners = nullptr;
};

// The pieces that a rank counts: the owned ones that no other rank counts. Undivided parameters belong to the first
// tensor rank; `skip_table`: the embedding table is counted on another stage.
std::vector<model::Piece> counted_pieces(const model::ParameterSet& parameters, const model::Part& part,
                                         bool skip_table);

class GradientNorm {
  public:
    // Elements of a parameter. Small, so that many replicas have as many of a bucket each.
    static constexpr std::int64_t block = 4096;

    // The parameters outlive it.
    GradientNorm(kernels::Backend& backend, const model::ParameterSet& parameters, NormPlan plan);

    // The sum of squares of all gradients and the number of zeros, in totals (fp64 [2]), as from sum_of_squares.
    // Collective over the plan's communicators.
    void sum(Tensor totals) const;
    // Counted elements of padding; they appear as zero gradients.
    std::int64_t padding() const;

  private:
    void sum_blocks(Tensor totals) const;

    kernels::Backend& backend_;
    const model::ParameterSet& parameters_;
    NormPlan plan_;
    struct Blocks {
        Tensor sums;  // rows of blocks_
        model::Piece piece;
    };
    std::vector<Blocks> counted_;  // a parameter's, or a part's of one
    Arena memory_;
    Tensor blocks_;  // fp64 [blocks of all parameters, 2]
    Tensor ranks_;   // fp64 [ranks of the communicator, 2]
};

}  // namespace lockstep::optim
