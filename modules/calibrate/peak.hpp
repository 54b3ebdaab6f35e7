// The rate that the shares in the log are shares of.
#pragma once

#include <string>

#include "layout/devices.hpp"

namespace lockstep::calibrate {

// The best of products that grow until one takes 2 ms, and of as many of the last as fit into `seconds`: what other
// programs on this machine take away for a moment does not count.
struct ProductRate {
    double flops = 0;    // a second
    double seconds = 0;  // of that product
};
ProductRate measure_products(layout::Devices& devices, Type type, double seconds);

struct Peak {
    double flops = 0;    // a second, of one rank's device
    std::string origin;  // "given", "the vendor's for this GPU", "measured by matrix products"
};

// given_tflops > 0 decides; then the vendor's number for dense products of the compute type; then measured_flops where
// the self-test has measured this rank; then a measurement of a few milliseconds, beside what the other ranks do.
Peak find_peak(layout::Devices& devices, Type compute, double given_tflops, double measured_flops);

}  // namespace lockstep::calibrate
