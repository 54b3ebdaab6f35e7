// What a layer need not keep for its backward pass.
#pragma once

#include "config/words.hpp"

namespace lockstep::model {

using config::Recompute;

// What costs no matrix product is recomputed.
inline bool recomputes_cheap(Recompute recompute) {
    return recompute == Recompute::cheap || recompute == Recompute::selective;
}

}  // namespace lockstep::model
