// Cosines and sines of rotary positions (Su et al. 2021), fp32, computed once per model in double precision.
#pragma once

#include "config/model_description.hpp"
#include "kernels/backend.hpp"

namespace lockstep::model {

struct RotaryTable {
    // `period` positions: the mini-batch for TTT (positions restart in each), the context for attention.
    RotaryTable(kernels::Backend& backend, const config::ModelDescription& model, std::int64_t period);
    Arena memory;
    Tensor cosine, sine;  // [period, f/2]
};

}  // namespace lockstep::model
