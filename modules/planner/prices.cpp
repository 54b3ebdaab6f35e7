#include "planner/prices.hpp"

#include <algorithm>

#include "planner/memory_model.hpp"
#include "planner/time_model.hpp"

namespace lockstep::planner {

Price price(const Hardware& hardware, const Job& job, const Layout& layout, double memory_limit) {
    Price price;
    const MemoryUse use = memory_use(hardware, job, layout);
    price.memory = use.total();
    price.room = memory_limit > 0 ? std::min(memory_limit, hardware.memory_bytes()) : hardware.memory_bytes();
    price.time = described_step_time(hardware, job, layout, use);
    if (price.memory > price.room) price.why_not = why_too_large(hardware, layout, use, memory_limit);
    return price;
}

}  // namespace lockstep::planner
