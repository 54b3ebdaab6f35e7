// The basis of TFLOP/s and MFU in the log: FLOP per token, and the reference peak.
#pragma once

#include "train/launch.hpp"

namespace lockstep::train {

struct FlopRates {
    double model_per_token = 0, hardware_per_token = 0;  // hardware: including recompute
    double peak = 0;                                     // FLOP/s of one rank's device
};

// product_flops: FLOP/s of this rank's matrix products, from the self-test; 0: not measured. Logs what the rates mean.
FlopRates find_flop_rates(Launch& launch, double product_flops);

}  // namespace lockstep::train
