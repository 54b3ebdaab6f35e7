// What the environment says of how kernels are run: LOCKSTEP_PTX_ARCHITECTURE (sm_80 or sm_90, the default),
// LOCKSTEP_PTX_SCHEDULE (lockstep, the default, or split), LOCKSTEP_PTX_SEED, LOCKSTEP_PTX_TENSOR_SUM (nearest, the
// default, or truncated).
#pragma once

#include "ptx/machine.hpp"

namespace lockstep::ptx {

struct Settings {
    int architecture = 90;
    int shared_optin = 0, shared_per_multiprocessor = 0;  // bytes
    Options options;
};
// Usage error: a word that is none of these.
Settings& settings();

// Of the launches from now on.
void set_order(Options::Schedule schedule, std::uint64_t seed);

}  // namespace lockstep::ptx
