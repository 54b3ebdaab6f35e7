// What the reference computes on: plain arrays of doubles, row-major, with the shapes of kernels/backend.hpp. These
// functions are written to be read, not to be fast, and use no code of the backends.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::reference {

using Values = std::vector<double>;

inline std::size_t rows_of(const Values& x, std::size_t width) {
    return x.size() / width;
}

inline double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace lockstep::reference
