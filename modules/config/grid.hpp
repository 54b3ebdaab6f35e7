// The process grid: ranks along four axes.
#pragma once

#include <cstdint>

namespace lockstep::config {

struct Grid {
    std::int64_t tensor = 1, context = 1, data = 1, pipeline = 1;
    std::int64_t ranks() const { return tensor * context * data * pipeline; }
    std::int64_t replicas() const { return data * context; }  // ranks that hold the same parameters
};

}  // namespace lockstep::config
