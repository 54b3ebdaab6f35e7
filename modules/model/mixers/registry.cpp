// The mixers of this program, and their keys. Linked into every program that has the model (REGISTERS in CMake).
#include "config/registry.hpp"

extern "C" bool lockstep_mixers;

namespace {

using lockstep::config::Kind;
using lockstep::config::OptionKey;

std::vector<OptionKey> ttt_keys() {
    using namespace lockstep::config;
    return {integer_key("mini_batch", 16, "Tokens of one inner step.", 1),
            number_key("base_lr", 0, "Inner learning rate. 0: 1.0 for `ttt-linear`, 0.1 for `ttt-mlp`.", 0),
            number_key("base_lr_warmup", 0,
                       "Where the inner learning rate starts; it reaches `base_lr` over `schedule.warmup`. 0: no "
                       "warm-up.",
                       0),
            flag_key("gate", false, "Gate the mixer's output."),
            flag_key("share_qk", false, "Queries and keys share a projection and have a convolution each."),
            flag_key("pre_conv", false, "A causal convolution before each mixer.")};
}

}  // namespace

bool lockstep_mixers = lockstep::config::register_mixer({"attention", ""}) &&
                       lockstep::config::register_mixer({"ttt-linear", "ttt", ttt_keys()}) &&
                       lockstep::config::register_mixer({"ttt-mlp", "ttt", ttt_keys()});
