#pragma once

#include "reference/values.hpp"

namespace lockstep::reference {

// op(a) [m, k] · op(b) [k, n].
inline Values product(const Values& a, bool transpose_a, const Values& b, bool transpose_b, std::size_t m,
                      std::size_t n, std::size_t k) {
    Values c(m * n);
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t p = 0; p < k; ++p)
                c[i * n + j] +=
                    (transpose_a ? a[p * m + i] : a[i * k + p]) * (transpose_b ? b[j * k + p] : b[p * n + j]);
    return c;
}

inline Values column_sums(const Values& x, std::size_t width) {
    Values sums(width);
    for (std::size_t i = 0; i < x.size(); ++i) sums[i % width] += x[i];
    return sums;
}

}  // namespace lockstep::reference
