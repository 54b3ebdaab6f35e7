// A step's sums of losses, on the device: over this rank's tokens, and over those of all ranks. With lanes the sum of
// each is kept, and all are added up in their order, whichever rank has which.
#pragma once

#include <cstdint>

#include "cluster/process_grid.hpp"
#include "device/memory.hpp"
#include "kernels/backend.hpp"

namespace lockstep::train {

class StepLoss {
  public:
    // counts: this rank's losses are its own; others of the model have none, or the same.
    StepLoss(kernels::Backend& backend, std::int64_t lanes, const config::Grid& grid, const cluster::GridPlace& place,
             bool counts);

    std::int64_t lanes_here() const { return lanes_here_; }  // 1 without lanes
    void clear();
    void fill(float value);                             // for tests of faults
    Tensor lane() const { return lane_; }               // fp64 [1], to which the losses of a lane are added
    void complete(std::int64_t lane);                   // of this rank's; the next one's begin at 0
    Tensor exchanged() const { return lanes_; }         // fp64, to be added up over all ranks, between complete()
    void finish();                                      // and this
    Tensor total() const { return sums_.slice(1, 1); }  // fp64 [1], over all ranks
    Tensor rank_and_total() const { return sums_; }     // fp64 [2]

  private:
    kernels::Backend& backend_;
    bool counts_;
    std::int64_t lanes_here_, first_;
    Arena memory_;
    Tensor lane_, lanes_, sums_;
};

}  // namespace lockstep::train
