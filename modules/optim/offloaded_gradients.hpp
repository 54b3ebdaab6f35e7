// Where the CPU updates parameters for a GPU: gradients and the decision, copied to host memory piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/memory.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

class OffloadedGradients {
  public:
    // The parameters, which are offloaded, outlive it.
    OffloadedGradients(kernels::Backend& backend, const model::ParameterSet& parameters);

    // Issues the copies of what the device has computed, in the order of the pieces.
    void fetch(Tensor decision);
    // Until the piece's gradient, and the decision, are in host memory.
    void wait(std::size_t piece);
    Tensor gradient(std::size_t piece) const { return gradients_[piece]; }  // fp32, flat
    Tensor decision() const { return decision_; }                           // fp64, laid out as kernels::Decision
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    kernels::Backend& backend_;
    const model::ParameterSet& parameters_;
    Arena memory_;
    Tensor decision_;
    std::vector<Tensor> gradients_;
    std::vector<std::unique_ptr<kernels::Later>> copied_;  // by piece: the decision, read behind the piece's gradient
};

}  // namespace lockstep::optim
