#include "model/mixers/ttt_options.hpp"

namespace lockstep::model {

TttOptions::TttOptions(const config::ModelDescription& model) {
    const config::Options given = model.options.at(ttt_section);
    mini_batch = given.integer("mini_batch");
    base_lr = given.number("base_lr");
    base_lr_warmup = given.number("base_lr_warmup");
    gate = given.flag("gate");
    share_qk = given.flag("share_qk");
    pre_conv = given.flag("pre_conv");
}

std::vector<config::OptionKey> ttt_keys() {
    using namespace config;
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

}  // namespace lockstep::model
