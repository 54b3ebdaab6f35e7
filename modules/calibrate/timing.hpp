// How the self-test, the peak and the calibration measure time.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/backend.hpp"

namespace lockstep::calibrate {

struct MeasuredRate {
    double per_second = 0;  // floating-point operations or bytes; 0: not measured
    double latency = 0;     // seconds for 8 bytes; reductions only
    double seconds = 0;     // duration of the measurement that gave per_second
};
// Keeps the better of the two.
void keep_best(MeasuredRate& best, const MeasuredRate& other);

// Seconds until the backend has finished what `issue` asks of it.
double seconds_of(kernels::Backend& backend, const std::function<void()>& issue);

// Measures sizes `first`, `factor` * `first`, … up to `last`, three times each, until one takes 2 ms: smaller ones stay
// in caches and pay for latency. Returns the best of that last size, which is repeated for `seconds`, at most 20 times:
// other programs may disturb some measurements, not all.
MeasuredRate best_rate(std::int64_t first, std::int64_t last, std::int64_t factor, double seconds,
                       const std::function<MeasuredRate(std::int64_t size)>& measure);

}  // namespace lockstep::calibrate
