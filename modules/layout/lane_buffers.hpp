// What a rank needs, beside its gradients, to add them up by lanes (layout/lane_tree.hpp): the sums that wait while
// later lanes are computed, and those that other replicas send of the pieces that are this rank's to add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/grid.hpp"
#include "device/memory.hpp"
#include "layout/gradient_plan.hpp"
#include "layout/lane_tree.hpp"

namespace lockstep::layout {

class LaneBuffers {
  public:
    // `replica` of the grid; trained: elements of its flat gradients.
    LaneBuffers(Device device, const GradientPlan& plan, const LaneTree& tree, const config::Grid& grid,
                std::int64_t replica, std::int64_t trained);

    // Waiting sums: fp32, laid out as the gradients; how many wait behind each of this rank's lanes but the last is
    // never more.
    const std::vector<Tensor>& waiting() const { return waiting_; }
    // Room for every other replica's nodes of one bucket's piece, fp32, flat.
    Tensor received() const { return received_; }
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    Arena memory_;
    std::vector<Tensor> waiting_;
    Tensor received_;
};

}  // namespace lockstep::layout
