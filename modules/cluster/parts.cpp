#include "cluster/parts.hpp"

namespace lockstep::cluster {

std::vector<Tensor> parts_of(Tensor values, const std::vector<std::int64_t>& cuts, int ranks) {
    const auto count = static_cast<std::size_t>(ranks);
    LOCKSTEP_ASSERT(cuts.size() == count + 1 && cuts.front() == 0 && cuts.back() == values.count());
    const Tensor flat = values.reshaped({values.count()});
    std::vector<Tensor> parts;
    for (std::size_t rank = 0; rank < count; ++rank) {
        LOCKSTEP_ASSERT(cuts[rank] <= cuts[rank + 1]);
        parts.push_back(flat.slice(cuts[rank], cuts[rank + 1] - cuts[rank]));
    }
    return parts;
}

}  // namespace lockstep::cluster
