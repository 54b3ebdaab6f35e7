#pragma once

#include "reference/values.hpp"

namespace lockstep::reference {

// position may be empty. The table holds the ids first_id, first_id + 1, …; others count as rows of zeros.
inline Values embedding_forward(const std::vector<int>& ids, const Values& table, const Values& position,
                                std::size_t width, std::size_t length, std::size_t first_position, int first_id = 0) {
    const int held = static_cast<int>(rows_of(table, width));
    Values y(ids.size() * width);
    for (std::size_t r = 0; r < ids.size(); ++r) {
        const int line = ids[r] - first_id;
        for (std::size_t c = 0; c < width; ++c) {
            if (line >= 0 && line < held) y[r * width + c] = table[static_cast<std::size_t>(line) * width + c];
            if (!position.empty()) y[r * width + c] += position[(first_position + r % length) * width + c];
        }
    }
    return y;
}

// += into dtable and, unless it is empty, dposition.
inline void embedding_backward(Values& dtable, Values& dposition, const std::vector<int>& ids, const Values& dy,
                               std::size_t width, std::size_t length, int first_id = 0) {
    const int held = static_cast<int>(rows_of(dtable, width));
    for (std::size_t r = 0; r < ids.size(); ++r) {
        const int line = ids[r] - first_id;
        for (std::size_t c = 0; c < width; ++c) {
            if (line >= 0 && line < held) dtable[static_cast<std::size_t>(line) * width + c] += dy[r * width + c];
            if (!dposition.empty()) dposition[r % length * width + c] += dy[r * width + c];
        }
    }
}

}  // namespace lockstep::reference
