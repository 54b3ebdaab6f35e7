// What `lockstep-analyze summary` prints of one run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/load/configuration.hpp"
#include "analysis/load/figures.hpp"

namespace lockstep::analysis {

struct Summary {
    std::vector<Setting> configuration;
    std::vector<Launch> launches;
    std::string status;  // status.json as it stands there
    std::string path;
    RunFigures figures;
    bool ranks_of_run = true;  // lines of each rank of the whole run, not only of their mean
};

nlohmann::ordered_json json_of(const Summary& summary);

inline double share_of(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}
// Of all ranks together.
inline double tokens_per_second(const SpanFigures& span) {
    return per_second(static_cast<double>(span.tokens), span.seconds);
}
// Of one rank, mean over the ranks that took part.
inline double tokens_per_second_of_a_rank(const SpanFigures& span) {
    return per_second(span.tokens_per_rank, span.seconds);
}

}  // namespace lockstep::analysis
