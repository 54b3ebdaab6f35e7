#pragma once

#include <algorithm>
#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

struct CrossEntropy {
    Values losses, dlogits;  // dlogits of Σ losses
};

inline CrossEntropy cross_entropy(const Values& logits, const std::vector<int>& targets) {
    const std::size_t rows = targets.size(), vocabulary = logits.size() / rows;
    CrossEntropy out{Values(rows), Values(logits.size())};
    for (std::size_t r = 0; r < rows; ++r) {
        if (targets[r] < 0) continue;
        const double* row = &logits[r * vocabulary];
        const double highest = *std::max_element(row, row + vocabulary);
        double total = 0;
        for (std::size_t c = 0; c < vocabulary; ++c) total += std::exp(row[c] - highest);
        const std::size_t target = static_cast<std::size_t>(targets[r]);
        out.losses[r] = highest + std::log(total) - row[target];
        for (std::size_t c = 0; c < vocabulary; ++c)
            out.dlogits[r * vocabulary + c] = std::exp(row[c] - highest) / total - (c == target ? 1 : 0);
    }
    return out;
}

}  // namespace lockstep::reference
