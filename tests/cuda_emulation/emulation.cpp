#include "cuda_emulation/emulation.hpp"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "cuda_emulation/block.hpp"
#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/runtime_state.hpp"
#include "cuda_emulation/streams.hpp"

namespace lockstep::emulation {

namespace {

struct Random {
    std::uint64_t seed = 0, state = 0;
    Random() {
        if (const char* text = std::getenv("LOCKSTEP_EMULATION_SEED")) set(std::strtoull(text, nullptr, 10));
    }
    void set(std::uint64_t value) {
        seed = value;
        state = value;
    }
};

Random& random_state() {
    static Random random;
    return random;
}

std::mutex ranges_lock;
std::vector<std::string> ranges;

}  // namespace

void set_seed(std::uint64_t value) {
    const std::lock_guard lock(device_lock());
    random_state().set(value);
}

std::uint64_t seed() {
    return random_state().seed;
}

std::uint64_t draw() {  // SplitMix64 (Steele, Lea, Flood 2014)
    std::uint64_t x = random_state().state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void run(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
         std::function<void()> thread) {
    const auto kernel = std::make_shared<const Kernel>(Kernel{name, grid, block, shared_bytes, std::move(thread)});
    check_launch(*kernel);
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream) || resolve(stream).device != current_device())
        throw fault_error("kernel '{}' was launched on a stream that is not one of GPU {}, the current one", name,
                          current_device());
    enqueue(stream, name, [kernel] {
        run_blocks(*kernel);
        if (const std::string damage = damaged_allocation(); !damage.empty())
            throw fault_error("kernel '{}': {}", kernel->name, damage);
    });
}

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
