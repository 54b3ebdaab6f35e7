// Causal attention with grouped keys and values.
#pragma once

#include <memory>

#include "model/mixers/registry.hpp"

namespace lockstep::model {

std::unique_ptr<MixerType> attention_type();

}  // namespace lockstep::model
