// The kernels' side of the runtime where they are fibers.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "cuda_emulation/block.hpp"
#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/runtime_state.hpp"
#include "cuda_emulation/streams.hpp"

using namespace lockstep::emulation;

namespace lockstep::emulation {

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

Architecture architecture() {
    return {9, 0, 227 * 1024, 228 * 1024};
}

void note_allocated(const void*, std::size_t, bool) {}
void note_released(const void*) {}
void note_written(const void*, std::size_t) {}

cudaError_t take_kernel_failure() {  // failures are thrown
    return cudaSuccess;
}

}  // namespace lockstep::emulation

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    const bool fits = attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
                      (value >= 0 && value <= architecture().shared_optin);
    return returned(function != nullptr && fits ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          std::size_t shared_bytes) {
    if (function == nullptr || threads < 1 || threads > 1024) return returned(cudaErrorInvalidValue);
    const int by_shared = shared_bytes > static_cast<std::size_t>(architecture().shared_optin)
                              ? 0
                              : static_cast<int>(architecture().shared_per_multiprocessor / (shared_bytes + 1024));
    *blocks = std::min({threads_per_multiprocessor / ((threads + 31) / 32 * 32), by_shared, blocks_per_multiprocessor});
    return cudaSuccess;
}
