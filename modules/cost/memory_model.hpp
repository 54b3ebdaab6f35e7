// The memory of one GPU for a described program, after Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054), Narayanan et
// al. 2021 (arXiv:2104.04473: micro-batches under way) and Korthikanti et al. 2022 (arXiv:2205.05198: activations). Our
// own program's plan is exact and elsewhere (own_memory.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "config/machine.hpp"
#include "cost/job.hpp"

namespace lockstep::cost {

struct MemoryUse {                                    // bytes, of the stage that needs most
    double parameters = 0, gradients = 0, owner = 0;  // owner: moments, masters
    double stored = 0;                                // activations of all micro-batches under way
    double working = 0;                               // of the block and the head being computed
    double fixed = 0;                                 // of the process, communication buffers included
    double cached = 0;                                // freed activations that the allocator keeps
    // From 0 (enough free memory) to 1: the share of the headroom of activations that is missing. The allocator must
    // then free and reallocate, which costs time (pressure_slowdown); it caches down to half as much.
    double pressure = 0;
    double total() const { return parameters + gradients + owner + stored + working + fixed + cached; }
    std::int64_t stage = 0, under_way = 0;
};
MemoryUse memory_use(const config::Machine& machine, const Job& job, const Layout& layout);

bool fits(const config::Machine& machine, const MemoryUse& use, double limit);  // limit: bytes; 0: the device's memory
// "activations of 24 micro-batches under way take 61.2 GiB; …": what is too large and how to lower it.
std::string why_too_large(const config::Machine& machine, const Layout& layout, const MemoryUse& use, double limit);

}  // namespace lockstep::cost
