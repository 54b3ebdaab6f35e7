// The attention mixer from its definition: projections, norms of heads, rotation, attention, the projection out.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>

#include "reference/attention.hpp"
#include "reference/norm.hpp"
#include "reference/product.hpp"
#include "reference/rotary.hpp"
#include "reference/values.hpp"

namespace lockstep::reference {

// Weights are [out, in]; norms [f], empty: none.
struct AttentionMixer {
    std::size_t width, heads, key_heads, head_width;
    Values query, key, value, output, query_norm, key_norm;
    double epsilon, theta;
    // Llama 3's scaling of frequencies; factor 1: none.
    double factor = 1, low = 1, high = 4, original_context = 8192;
    std::size_t window = 0;
    double score_cap = 0;

    double frequency(std::size_t pair) const {
        const double plain = std::pow(theta, -2 * static_cast<double>(pair) / static_cast<double>(head_width));
        const double turns = original_context * plain / (2 * std::numbers::pi);  // over the original context
        if (turns <= low) return plain / factor;
        if (turns >= high) return plain;
        const double kept = (turns - low) / (high - low);
        return plain * (kept + (1 - kept) / factor);
    }

    Values projected(const Values& x, const Values& weight, std::size_t columns) const {
        return product(x, false, weight, true, rows_of(x, width), columns, width);
    }
    Values normed(const Values& x, const Values& weight) const {
        return weight.empty() ? x : norm_forward(x, weight, {}, epsilon, false).y;
    }
    Values rotated(const Values& x, std::size_t count, std::size_t length) const {
        const std::size_t half = head_width / 2;
        Values cosine, sine;
        for (std::size_t position = 0; position < length; ++position)
            for (std::size_t i = 0; i < half; ++i) {
                cosine.push_back(std::cos(static_cast<double>(position) * frequency(i)));
                sine.push_back(std::sin(static_cast<double>(position) * frequency(i)));
            }
        return rotate(x, cosine, sine, count * head_width, half, length, 0, false, false);
    }

    Values forward(const Values& x, std::size_t length) const {
        const std::size_t columns = heads * head_width, key_columns = key_heads * head_width;
        const Values q = rotated(normed(projected(x, query, columns), query_norm), heads, length);
        const Values k = rotated(normed(projected(x, key, key_columns), key_norm), key_heads, length);
        const std::size_t rows = rows_of(x, width);
        const Values y =
            attention_forward(q, k, projected(x, value, key_columns),
                              {rows / length, length, length, heads, key_heads, head_width, 0, window, score_cap})
                .y;
        return product(y, false, output, true, rows, width, columns);
    }
};

}  // namespace lockstep::reference
