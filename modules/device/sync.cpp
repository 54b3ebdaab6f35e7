#include "device/sync.hpp"

namespace lockstep {
namespace {
SyncMode mode_of_process = SyncMode::async;
}  // namespace

void set_sync_mode(SyncMode mode) {
    mode_of_process = mode;
}

SyncMode sync_mode() {
    return mode_of_process;
}

}  // namespace lockstep
