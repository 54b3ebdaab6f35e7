// What a rank needs, beside its gradients, to add them up by lanes (layout/lane_tree.hpp): the sums that wait while
// later lanes are computed, and those that other replicas send of the pieces that are this rank's to add up. Pieces are
// exchanged in slices, so that the latter are few however many replicas there are.
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
    // `replica` of the grid; trained: elements of its flat gradients; bucket_bytes: as the run describes them.
    LaneBuffers(Device device, const GradientPlan& plan, const LaneTree& tree, const config::Grid& grid,
                std::int64_t replica, std::int64_t trained, std::int64_t bucket_bytes);

    // Waiting sums: fp32, laid out as the gradients; how many wait behind each of this rank's lanes but the last is
    // never more.
    const std::vector<Tensor>& waiting() const { return waiting_; }
    // Room for every other replica's nodes of one slice, fp32, flat.
    Tensor received() const { return received_; }
    std::int64_t slice() const { return slice_; }  // elements, at most; the same on all replicas
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    std::int64_t slice_ = 0;
    Arena memory_;
    std::vector<Tensor> waiting_;
    Tensor received_;
};

}  // namespace lockstep::layout
