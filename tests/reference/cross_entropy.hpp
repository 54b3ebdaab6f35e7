#pragma once

#include <algorithm>
#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

struct CrossEntropy {
    Values losses, z_losses, dlogits;  // dlogits of Σ losses + z_losses
};

// With a cap, dlogits is that of the logits before they were capped.
inline CrossEntropy cross_entropy(const Values& logits, const std::vector<int>& targets, double z_loss = 0,
                                  double cap = 0) {
    const std::size_t rows = targets.size(), vocabulary = logits.size() / rows;
    CrossEntropy out{Values(rows), Values(rows), Values(logits.size())};
    for (std::size_t r = 0; r < rows; ++r) {
        if (targets[r] < 0) continue;
        const double* row = &logits[r * vocabulary];
        const double highest = *std::max_element(row, row + vocabulary);
        double total = 0;
        for (std::size_t c = 0; c < vocabulary; ++c) total += std::exp(row[c] - highest);
        const std::size_t target = static_cast<std::size_t>(targets[r]);
        const double log_z = highest + std::log(total);
        out.losses[r] = log_z - row[target];
        out.z_losses[r] = z_loss * log_z * log_z;
        for (std::size_t c = 0; c < vocabulary; ++c) {
            const double probability = std::exp(row[c] - highest) / total;
            const double slope = cap > 0 ? 1 - row[c] * row[c] / (cap * cap) : 1;
            out.dlogits[r * vocabulary + c] =
                slope * (probability - (c == target ? 1 : 0) + 2 * z_loss * log_z * probability);
        }
    }
    return out;
}

}  // namespace lockstep::reference
