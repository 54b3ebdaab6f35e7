// Which linear layers have adapters (Hu et al. 2021, LoRA, arXiv:2106.09685): a layer with weight W [out, in] then
// computes x Wᵀ + alpha / rank · (x Aᵀ) Bᵀ. Of such a model A [rank, in] and B [out, rank] are trained alone.
#pragma once

#include <string>

#include "config/model_description.hpp"

namespace lockstep::model {

// "blocks/0/mixer/query" has "blocks/0/mixer/query/lora_a" and "…/lora_b".
constexpr const char *adapter_a = "/lora_a", *adapter_b = "/lora_b";

bool is_adapter(const std::string& parameter);
std::string adapted_layer(const std::string& adapter);  // "blocks/0/mixer/query"
// Whether model.adapters matches the layer.
bool is_adapted(const config::ModelDescription& model, const std::string& layer);
double adapter_scale(const config::ModelDescription& model);  // alpha / rank
// Usage error where a pattern of model.adapters.match matches no linear layer of a block.
void check_adapters(const config::ModelDescription& model);

}  // namespace lockstep::model
