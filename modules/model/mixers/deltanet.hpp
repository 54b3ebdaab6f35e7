// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464), as in Qwen3-Next (Qwen Team 2025); the equations are in
// docs/gated-deltanet.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"

namespace lockstep::model {

std::unique_ptr<MixerType> gated_deltanet_type();

// The keys of [model.deltanet], with what they default to filled in.
struct DeltanetOptions {
    DeltanetOptions(const config::ModelDescription& model, const config::LayerShape& layer);
    std::int64_t heads, key_heads;        // of values; of queries and keys
    std::int64_t key_width, value_width;  // of a head
    std::int64_t keys() const { return key_heads * key_width; }
    std::int64_t values() const { return heads * value_width; }
};

// The run-time half (deltanet_mixer.cpp).
std::unique_ptr<Mixer> make_deltanet_mixer(Backend& backend, const ParameterSet& parameters,
                                           const config::ModelDescription& model, const config::LayerShape& layer,
                                           const DeltanetOptions& options, const Neighbours& neighbours);

}  // namespace lockstep::model
