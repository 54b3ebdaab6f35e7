// Frozen parameters (model.frozen): they have values, but no gradients and no moments. A gradient flows through a
// frozen layer where something below it is trained; below the lowest trained parameter there is no backward pass.
#pragma once

#include <cstdint>
#include <string>

#include "config/model_description.hpp"

namespace lockstep::model {

// Whether a pattern of model.frozen matches the name: `*` stands for any text, `/` included, `?` for one character,
// `[…]` for one of several (fnmatch of POSIX).
bool is_frozen(const config::ModelDescription& model, const std::string& name);

// Usage error where a pattern matches no parameter of the model (it names the nearest), or nothing is left to train.
void check_frozen(const config::ModelDescription& model);

// Whether the embedding, the positions or a block before `block` train anything.
bool trains_before(const config::ModelDescription& model, std::int64_t block);

std::int64_t trained_parameter_count(const config::ModelDescription& model);

}  // namespace lockstep::model
