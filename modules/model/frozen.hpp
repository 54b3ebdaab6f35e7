// Frozen parameters (model.frozen) have values but no gradients or optimizer state. Gradients flow through a frozen
// layer if something below it is trained; below the lowest trained parameter there is no backward pass.
#pragma once

#include <cstdint>
#include <string>

#include "config/model_description.hpp"

namespace lockstep::model {

bool freezes(const config::ModelDescription& model);  // whether anything is frozen
// Whether a pattern of model.frozen matches the parameter; with adapters, whether it is none of these.
bool is_frozen(const config::ModelDescription& model, const std::string& name);

// Usage error if a pattern, of adapters too, matches nothing (it names the nearest), or nothing is left to train.
void check_frozen(const config::ModelDescription& model);

// Whether the embedding, the positions or a block before `block` is trained.
bool trains_before(const config::ModelDescription& model, std::int64_t block);

std::int64_t trained_parameter_count(const config::ModelDescription& model);

}  // namespace lockstep::model
