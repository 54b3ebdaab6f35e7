// Decides on the device whether and at what scale a step's gradients are used: skipping, clipping, loss scaling.
#pragma once

#include <cstdint>

#include "device/memory.hpp"
#include "kernels/backend.hpp"

namespace lockstep::optim {

// Initial or resumed state.
struct Progress {
    std::int64_t updates = 0;
    double loss_scale = 1;
    std::int64_t good_steps = 0, bad_steps = 0;
};

class UpdateDecision {
  public:
    explicit UpdateDecision(kernels::Backend& backend);
    void set_progress(kernels::Backend& backend, const Progress& progress);
    Tensor values() const { return values_; }  // fp64, laid out as kernels::Decision
    Tensor totals() const { return totals_; }  // fp64 [2]: its input (GradientNorm)
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    Arena memory_;
    Tensor values_, totals_;
};

}  // namespace lockstep::optim
