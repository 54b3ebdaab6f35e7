#include "device/sync.hpp"

#include "base/error.hpp"

namespace lockstep {
namespace {
SyncMode mode_of_process = SyncMode::async;
constexpr const char* names[] = {"async", "bounded", "phase", "collective", "launch"};
}  // namespace

void set_sync_mode(SyncMode mode) {
    mode_of_process = mode;
}

SyncMode sync_mode() {
    return mode_of_process;
}

SyncMode sync_mode_from(const std::string& name) {
    for (int i = 0; i < 5; ++i)
        if (name == names[i]) return static_cast<SyncMode>(i);
    throw usage_error("the sync mode {} is unknown; there are async, bounded, phase, collective and launch", name);
}

const char* sync_mode_name(SyncMode mode) {
    return names[static_cast<int>(mode)];
}

}  // namespace lockstep
