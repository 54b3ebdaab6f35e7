// Which parameters decay (optimizer.decay), in the form that kernels take.
#pragma once

#include <vector>

#include "config/run_description.hpp"
#include "device/memory.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

bool decays(const config::OptimizerSection& settings, const model::ParameterDescription& parameter);

// For each owned piece the bits described at kernels::DecayBits.
class DecayMap {
  public:
    DecayMap(kernels::Backend& backend, const model::ParameterSet& parameters,
             const config::OptimizerSection& settings);
    Tensor of_piece(std::size_t piece) const { return words_[piece]; }
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    Arena memory_;
    std::vector<Tensor> words_;
};

}  // namespace lockstep::optim
