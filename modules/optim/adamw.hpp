// AdamW (Loshchilov & Hutter 2019) over a stage's parameters, with clipping of the gradient's norm.
#pragma once

#include <cstdint>

#include "config/run_description.hpp"
#include "kernels/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::optim {

class AdamW {
  public:
    AdamW(kernels::Backend& backend, model::ParameterSet& parameters, const config::OptimizerSection& settings);

    // L2 norm of all gradients together.
    double gradient_norm() const;
    // One update. `gradient_norm` decides the clip factor: clip / (norm + 1e-6), at most 1. `step` counts updates
    // from 1.
    void update(double learning_rate, double gradient_norm, std::int64_t step);

    Tensor first_moment(std::size_t parameter) const { return parameters_.part(first_moment_, parameter); }
    Tensor second_moment(std::size_t parameter) const { return parameters_.part(second_moment_, parameter); }
    Tensor all_moments() const { return all_moments_; }  // flat: first, then second
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    bool decays(const model::ParameterDescription& parameter) const;
    kernels::Backend& backend_;
    model::ParameterSet& parameters_;
    config::OptimizerSection settings_;
    Arena memory_;
    Tensor all_moments_, first_moment_, second_moment_;  // flat, laid out like the parameters
};

}  // namespace lockstep::optim
