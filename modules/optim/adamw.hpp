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

    // One update, decided on the device: none where `loss` (fp64 [1]) or the norm of all gradients is not finite; the
    // norm decides the clip factor, clip / (norm + 1e-6), at most 1.
    void update(double learning_rate, Tensor loss);
    // Of the last update, laid out as kernels::Decision.
    Tensor decision() const { return decision_; }
    void set_updates(std::int64_t updates);  // made so far, where a run is resumed

    Tensor first_moment(std::size_t parameter) const { return parameters_.part(first_moment_, parameter); }
    Tensor second_moment(std::size_t parameter) const { return parameters_.part(second_moment_, parameter); }
    Tensor all_moments() const { return all_moments_; }  // flat: first, then second
    std::size_t bytes() const { return memory_.capacity(); }

  private:
    void mark_decaying();
    kernels::Backend& backend_;
    model::ParameterSet& parameters_;
    config::OptimizerSection settings_;
    Arena memory_, small_;
    Tensor all_moments_, first_moment_, second_moment_;  // flat, laid out like the parameters
    Tensor decays_, decision_, squares_;
};

}  // namespace lockstep::optim
