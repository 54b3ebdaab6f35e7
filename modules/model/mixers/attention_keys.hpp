// Keys of a model that only attention heeds.
#pragma once

#include <string>

#include "config/model_description.hpp"

namespace lockstep::model {

// Usage error if such a key has a value that would have no effect, in a model without attention, of `mixer`.
void refuse_attention_keys(const config::ModelDescription& model, const config::LayerShape& layer,
                           const std::string& mixer);

}  // namespace lockstep::model
