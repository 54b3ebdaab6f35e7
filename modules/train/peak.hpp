// The rate that the shares in the log are shares of.
#pragma once

#include <string>

#include "train/devices.hpp"

namespace lockstep::train {

struct Peak {
    double flops = 0;    // a second, of one rank's device
    std::string origin;  // "given", "the vendor's for this GPU", "measured by matrix products"
};

// given_tflops > 0 decides; then the vendor's number for dense products of the compute type; then a measurement of a
// few milliseconds on this rank, beside what the other ranks do.
Peak find_peak(Devices& devices, Type compute, double given_tflops);

}  // namespace lockstep::train
