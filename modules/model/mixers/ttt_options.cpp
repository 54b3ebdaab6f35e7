#include "model/mixers/ttt_options.hpp"

namespace lockstep::model {

TttOptions::TttOptions(const config::ModelDescription& model)
    : mini_batch(model.ttt.mini_batch),
      base_lr(model.ttt.base_lr),
      base_lr_warmup(model.ttt.base_lr_warmup),
      gate(model.ttt.gate),
      share_qk(model.ttt.share_qk),
      pre_conv(model.ttt.pre_conv) {}

}  // namespace lockstep::model
