// The rate that MFU is relative to.
#pragma once

#include <string>

#include "calibrate/timing.hpp"
#include "layout/devices.hpp"

namespace lockstep::calibrate {

// FLOP/s of square matrix products: the best of sizes that grow until one takes 2 ms, the last repeated for `seconds`.
MeasuredRate measure_products(layout::Devices& devices, Type type, double seconds);

struct Peak {
    double flops = 0;    // FLOP/s of one rank's device
    std::string origin;  // "given", "the vendor's figure for this GPU", "measured by matrix products"
};

// given_tflops if positive; else the vendor's figure for dense products of the compute type; else measured_flops if the
// self-test has measured this rank; else a measurement of a few milliseconds while the other ranks do the same.
Peak find_peak(layout::Devices& devices, Type compute, double given_tflops, double measured_flops);

}  // namespace lockstep::calibrate
