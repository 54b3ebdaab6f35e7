// The keys of [model.ttt], which ttt-linear and ttt-mlp share.
#pragma once

#include <vector>

#include "config/model_description.hpp"

namespace lockstep::model {

constexpr const char* ttt_section = "ttt";
std::vector<config::OptionKey> ttt_keys();

struct TttOptions {
    explicit TttOptions(const config::ModelDescription& model);
    std::int64_t mini_batch;  // tokens of one inner step
    double base_lr;           // inner learning rate; 0: not given, the mixer's default
    double base_lr_warmup;    // > 0: the inner rate starts here and reaches base_lr over the outer warm-up
    bool gate, share_qk, pre_conv;
};

}  // namespace lockstep::model
