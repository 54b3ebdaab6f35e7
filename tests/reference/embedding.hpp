#pragma once

#include "reference/values.hpp"

namespace lockstep::reference {

// position may be empty.
inline Values embedding_forward(const std::vector<int>& ids, const Values& table, const Values& position,
                                std::size_t width, std::size_t length, std::size_t first_position) {
    Values y(ids.size() * width);
    for (std::size_t r = 0; r < ids.size(); ++r)
        for (std::size_t c = 0; c < width; ++c)
            y[r * width + c] = table[static_cast<std::size_t>(ids[r]) * width + c] +
                               (position.empty() ? 0 : position[(first_position + r % length) * width + c]);
    return y;
}

// += into dtable and, unless it is empty, dposition.
inline void embedding_backward(Values& dtable, Values& dposition, const std::vector<int>& ids, const Values& dy,
                               std::size_t width, std::size_t length) {
    for (std::size_t r = 0; r < ids.size(); ++r)
        for (std::size_t c = 0; c < width; ++c) {
            dtable[static_cast<std::size_t>(ids[r]) * width + c] += dy[r * width + c];
            if (!dposition.empty()) dposition[r % length * width + c] += dy[r * width + c];
        }
}

}  // namespace lockstep::reference
