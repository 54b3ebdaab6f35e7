// Cosines and sines of rotary positions (Su et al. 2021), fp32, computed once per model in double precision.
#pragma once

#include "config/model_description.hpp"
#include "kernels/backend.hpp"

namespace lockstep::model {

struct RotaryTable {
    // `period` positions: the mini-batch for TTT (positions restart in each), the context for attention.
    RotaryTable(kernels::Backend& backend, const config::ModelDescription& model, std::int64_t head_width,
                std::int64_t period);
    Arena memory;
    Tensor cosine, sine;  // [period, f/2]
};

// Turns queries and keys, or their gradients back, in place: in one pass where they are neighbouring columns of one
// matrix. The first row is at `position`.
void rotate(kernels::Backend& backend, const RotaryTable& table, Tensor q, Tensor k, std::int64_t length,
            std::int64_t position, kernels::RotaryPairs pairs, bool inverse);

}  // namespace lockstep::model
