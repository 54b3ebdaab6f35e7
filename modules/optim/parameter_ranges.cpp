#include "optim/parameter_ranges.hpp"

#include <algorithm>

namespace lockstep::optim {

std::vector<ParameterRange> ranges_of(const model::ParameterLayout& layout, const std::vector<model::Piece>& pieces) {
    std::vector<ParameterRange> ranges;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        const std::int64_t begin = pieces[piece].first, end = begin + pieces[piece].count;
        if (begin == end) continue;
        for (std::size_t i = layout.at(begin); i < layout.size() && layout.offset(i) < end; ++i) {
            const std::int64_t offset = layout.offset(i);
            const std::int64_t padded_end = i + 1 < layout.size() ? layout.offset(i + 1) : layout.total();
            const std::int64_t first = std::max(begin, offset), last = std::min(end, padded_end);
            if (first >= last) continue;  // an empty slice
            // A piece may begin within the padding of an uneven slice.
            const std::int64_t count = std::max<std::int64_t>(0, std::min(last, offset + layout.count(i)) - first);
            ranges.push_back({i, piece, first - begin, first - offset, count, last - first - count});
        }
    }
    return ranges;
}

}  // namespace lockstep::optim
