// When the host waits for the device. Losses are the same in all modes; docs/sync-modes.md has the costs.
#pragma once

#include "config/words.hpp"

namespace lockstep {

using config::SyncMode;
constexpr int bounded_steps = 4;

// Of this process; async by default.
void set_sync_mode(SyncMode mode);
SyncMode sync_mode();

}  // namespace lockstep
