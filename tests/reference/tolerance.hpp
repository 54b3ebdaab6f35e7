// How far a backend may be from the reference: the one place where tolerances are made.
//
// A sum of n random terms in a type of unit roundoff u is off by about u sqrt(n) of its size; the constants leave room
// for a few operations around the sum and for the largest of many errors. Differences are measured against the largest
// reference value of the tensor, since a single value may be small by cancellation.
#pragma once

#include <cmath>
#include <cstddef>

namespace lockstep::reference {

constexpr double fp32_roundoff = 5.9604644775390625e-8;  // 2^-24
constexpr double bf16_roundoff = 3.90625e-3;             // 2^-8
constexpr double fp16_roundoff = 4.8828125e-4;           // 2^-11

inline double tolerance(double roundoff, std::size_t reduction_length) {
    return roundoff * (24 + 6 * std::sqrt(static_cast<double>(reduction_length)));
}

}  // namespace lockstep::reference
