// Central differences in double: the check of the reference's own backward functions.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

// The largest |numerical - gradient|, relative to the largest gradient (at least 1), over at most `samples` elements of
// x. `loss` reads x, which is changed and put back.
template <class Loss>
double gradient_error(Values& x, const Values& gradient, Loss&& loss, std::size_t samples = 60) {
    if (x.size() != gradient.size()) return HUGE_VAL;
    double size = 1, worst = 0;
    for (const double value : gradient) size = std::max(size, std::abs(value));
    const std::size_t stride = std::max<std::size_t>(1, x.size() / samples);
    for (std::size_t i = 0; i < x.size(); i += stride) {
        const double kept = x[i], h = 1e-5 * std::max(1.0, std::abs(kept));
        x[i] = kept + h;
        const double above = loss();
        x[i] = kept - h;
        const double below = loss();
        x[i] = kept;
        const double error = std::abs((above - below) / (2 * h) - gradient[i]) / size;
        if (!(error <= worst)) worst = error;  // NaN counts
    }
    return worst;
}

constexpr double gradient_tolerance = 1e-7;

}  // namespace lockstep::reference
