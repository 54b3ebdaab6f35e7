// Warnings about a rank map: sentences for RankMap::remarks.
#pragma once

#include <string>
#include <vector>

#include "cluster/rank_map.hpp"

namespace lockstep::cluster {

std::vector<std::string> remarks_on(const Hardware& hardware, const std::vector<RankRequest>& requests,
                                    const std::vector<RankSeat>& seats);

}  // namespace lockstep::cluster
