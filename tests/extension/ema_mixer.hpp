// A mixer that the product does not know: an exponential moving average of the values with a learned rate per head,
//
//   y = output(s),  s_t = a s_{t-1} + (1 - a) value(x_t),  a = floor + (1 - floor) sigmoid(rate),
//
// on CPUs. A program that links ema_mixer.cpp has it as model.mixer = "ema".
#pragma once

#include <memory>

#include "model/mixers/registry.hpp"

namespace lockstep::test {

std::unique_ptr<model::MixerType> ema_type();

}  // namespace lockstep::test
