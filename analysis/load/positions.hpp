// The loss by position in the sequence, as `lockstep eval --by-position --format json` writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::analysis {

struct PositionLoss {
    std::int64_t first = 0, last = 0;  // positions, from 1
    double loss = 0;                   // mean, nats
};

// Of positions.json in a run's folder, or beside a trace; nothing where that is missing or is something else.
std::vector<PositionLoss> losses_by_position(const std::string& path);

}  // namespace lockstep::analysis
