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

// The columns [first, first + count) of rows of `width`, and back.
inline Values columns_of(const Values& x, std::size_t width, std::size_t first, std::size_t count) {
    Values part;
    for (std::size_t r = 0; r < rows_of(x, width); ++r)
        for (std::size_t c = 0; c < count; ++c) part.push_back(x[r * width + first + c]);
    return part;
}
inline void put_columns(Values& x, std::size_t width, std::size_t first, std::size_t count, const Values& part) {
    for (std::size_t i = 0; i < part.size(); ++i) x[i / count * width + first + i % count] = part[i];
}

inline double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace lockstep::reference
