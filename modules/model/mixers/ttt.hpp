// TTT-Linear and TTT-MLP (Sun et al. 2024, arXiv:2407.04620); the equations are in docs/ttt.md. They differ in the
// inner model: one linear layer of a head's width, or an MLP four times as wide.
#pragma once

#include <memory>

#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"

namespace lockstep::model {

std::unique_ptr<MixerType> ttt_linear_type();
std::unique_ptr<MixerType> ttt_mlp_type();

// The keys of [model.ttt], which both share.
struct TttOptions {
    explicit TttOptions(const config::ModelDescription& model);
    std::int64_t mini_batch;  // tokens of one inner step
    double base_lr;           // inner learning rate; 0: not given, the mixer's default
    double base_lr_warmup;    // > 0: the inner rate starts here and reaches base_lr over the outer warm-up
    bool gate, share_qk, pre_conv;
};

// The run-time half (ttt_mixer.cpp).
std::unique_ptr<Mixer> make_ttt_mixer(Backend& backend, const ParameterSet& parameters,
                                      const config::ModelDescription& model, const config::LayerShape& layer,
                                      const TttOptions& options, bool mlp, const Neighbours& neighbours);

}  // namespace lockstep::model
