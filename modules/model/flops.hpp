// Floating-point operations of a model, additive form, recomputation not counted ("model FLOP"): a training step costs
// three times its forward pass where everything is trained.
#pragma once

#include <cstdint>

#include "config/model_description.hpp"

namespace lockstep::model {

// A forward pass of one token in sequences of `length`: 2 per weight of a matrix product (head included), causal
// attention 2·length·d a layer (half of the full square), TTT inner products H(6f² + 4bf) linear, H(56f² + 20bf) mlp.
double forward_flop_per_token(const config::ModelDescription& model, std::int64_t length);
// Of a layer (mixer, MLP, head) with frozen weights: forward; mixing and the gradients of what weights are multiplied
// with where something in the layer or below is trained (of the layer's input: in its norm or below); and the gradients
// of weights that are trained.
double training_flop_per_token(const config::ModelDescription& model, std::int64_t length);
// What full recomputation does once more in the backward pass, in the blocks that this reaches.
double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length);

}  // namespace lockstep::model
