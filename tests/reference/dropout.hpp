// Dropout, element by element in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "reference/values.hpp"

namespace lockstep::reference {

// What is cleared: column `column` of a layer's input, of the token with these 64 bits.
inline bool drops(std::uint64_t token, std::uint64_t layer, std::int64_t column, std::uint32_t threshold) {
    const auto low = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); };
    const auto high = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits >> 32); };
    const auto words =
        philox4x32({static_cast<std::uint32_t>(column / 8), 0, low(layer), high(layer)}, {low(token), high(token)});
    const std::uint32_t word = words[static_cast<std::size_t>(column % 8 / 2)];
    return (column % 2 == 0 ? word & 0xFFFF : word >> 16) < threshold;
}

// Of x [N, d], whose columns are those from first_column on.
inline Values dropout(const Values& x, const std::vector<std::uint64_t>& tokens, std::uint64_t layer,
                      std::int64_t first_column, double probability) {
    const auto threshold = static_cast<std::uint32_t>(probability * 65536 + 0.5);
    const std::size_t columns = x.size() / tokens.size();
    Values y(x.size());
    for (std::size_t row = 0; row < tokens.size(); ++row)
        for (std::size_t c = 0; c < columns; ++c)
            y[row * columns + c] = drops(tokens[row], layer, first_column + static_cast<std::int64_t>(c), threshold)
                                       ? 0
                                       : x[row * columns + c] * 65536 / (65536 - threshold);
    return y;
}

}  // namespace lockstep::reference
