// When the host waits for the device. Losses are the same in all modes; docs/sync-modes.md says what each costs.
#pragma once

#include <string>

namespace lockstep {

enum class SyncMode {
    async,       // the host waits only for the scalars of the step before
    bounded,     // as async, but up to bounded_steps steps ahead
    phase,       // waits at the end of every phase of a step: phase times are those of the device
    collective,  // waits before and after every collective operation, with a barrier before it: finds who hangs
    launch       // waits after every kernel and checks it: the error names the kernel
};
constexpr int bounded_steps = 4;

// Of this process; async at first.
void set_sync_mode(SyncMode mode);
SyncMode sync_mode();
SyncMode sync_mode_from(const std::string& name);  // usage error for an unknown name
const char* sync_mode_name(SyncMode mode);

}  // namespace lockstep
