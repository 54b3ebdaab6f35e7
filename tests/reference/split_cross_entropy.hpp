// Cross-entropy over some columns of the vocabulary, part by part.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/cross_entropy.hpp"

namespace lockstep::reference {

inline Values cross_entropy_maxima(const Values& logits, std::size_t columns) {
    Values maxima;
    for (std::size_t r = 0; r < rows_of(logits, columns); ++r)
        maxima.push_back(*std::max_element(&logits[r * columns], &logits[r * columns] + columns));
    return maxima;
}

// [N, 2]: Σ exp(x - maximum), x[target] - maximum.
inline Values cross_entropy_sums(const Values& logits, const Values& maxima, const std::vector<int>& targets,
                                 int first_id) {
    const std::size_t rows = targets.size(), columns = logits.size() / rows;
    Values sums(2 * rows);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; targets[r] >= 0 && c < columns; ++c) {
            const double above = logits[r * columns + c] - maxima[r];
            sums[2 * r] += std::exp(above);
            if (first_id + static_cast<int>(c) == targets[r]) sums[2 * r + 1] = above;
        }
    return sums;
}

inline CrossEntropy cross_entropy_finish(const Values& logits, const Values& maxima, const Values& sums,
                                         const std::vector<int>& targets, int first_id) {
    const std::size_t rows = targets.size(), columns = logits.size() / rows;
    CrossEntropy out{Values(rows), Values(rows), Values(logits.size())};
    for (std::size_t r = 0; r < rows; ++r) {
        if (targets[r] < 0) continue;
        out.losses[r] = std::log(sums[2 * r]) - sums[2 * r + 1];
        for (std::size_t c = 0; c < columns; ++c)
            out.dlogits[r * columns + c] = std::exp(logits[r * columns + c] - maxima[r]) / sums[2 * r] -
                                           (first_id + static_cast<int>(c) == targets[r] ? 1 : 0);
    }
    return out;
}

}  // namespace lockstep::reference
