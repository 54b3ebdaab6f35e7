#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <utility>

#include "cuda_emulation/emulation.hpp"

namespace lockstep::emulation {

namespace {

std::mutex ranges_lock;
std::vector<std::string> ranges;

}  // namespace

std::vector<std::string> take_nvtx_names() {
    const std::lock_guard lock(ranges_lock);
    return std::exchange(ranges, {});
}

void note_nvtx_name(const char* name) {
    const std::lock_guard lock(ranges_lock);
    ranges.emplace_back(name);
}

}  // namespace lockstep::emulation

thread_local int depth = 0;

int nvtxRangePushA(const char* message) {
    lockstep::emulation::note_nvtx_name(message);
    return depth++;
}

int nvtxRangePop() {
    return depth > 0 ? --depth : -2;
}

nvtxRangeId_t nvtxRangeStartA(const char* message) {
    lockstep::emulation::note_nvtx_name(message);
    return 1;
}

void nvtxRangeEnd(nvtxRangeId_t) {}
void nvtxMarkA(const char*) {}
void nvtxNameOsThreadA(std::uint32_t, const char*) {}
