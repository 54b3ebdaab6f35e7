// The kernels' side of the runtime where the machine for PTX runs them: launches as host objects of nvcc make them.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/runtime_state.hpp"
#include "cuda_emulation/streams.hpp"
#include "ptx/counts.hpp"
#include "ptx/outcome.hpp"
#include "ptx/registry.hpp"
#include "ptx/settings.hpp"

namespace lockstep::emulation {

namespace {

bool kernel_failed = false;

ptx::GlobalMemory& global_memory() {  // memory is freed after main, too
    static auto& memory = *new ptx::GlobalMemory;
    return memory;
}

struct Launch {
    std::string name;
    const ptx::Kernel* kernel = nullptr;
    dim3 grid, block;
    std::uint32_t shared_bytes = 0;
    std::vector<std::byte> parameters;

    void run() const {
        const auto extent = [](const dim3& d) { return ptx::Extent{d.x, d.y, d.z}; };
        ptx::Options options = ptx::settings().options;
        static std::uint64_t launches = 0;
        options.seed += ++launches << 32;  // no two launches in the same order
        try {
            ptx::Counts counts;
            const auto findings = ptx::run(*kernel, extent(grid), extent(block), shared_bytes, parameters,
                                           global_memory(), options, ptx::counting_launches() ? &counts : nullptr);
            if (ptx::counting_launches()) count(counts);
            for (const ptx::Finding& finding : findings) ptx::report(describe(finding));
            kernel_failed = kernel_failed || !findings.empty();
        } catch (const Error& error) {
            ptx::report(error.what());
            kernel_failed = true;
        }
    }

    void count(const ptx::Counts& counts) const {
        const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
        const std::uint64_t warps = (std::uint64_t{block.x} * block.y * block.z + 31) / 32;
        ptx::add_launch(
            {name, 1, blocks, blocks * warps, shared_bytes + ptx::shape(*kernel).static_shared_bytes, counts});
    }
};

// What CUDA makes of a configuration that the device or the kernel does not allow.
cudaError_t check_configuration(const ptx::RegisteredFunction& function, const ptx::KernelShape& shape, dim3 grid,
                                dim3 block, std::size_t shared_bytes) {
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64)
        return cudaErrorInvalidConfiguration;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (shape.most_threads != 0 && threads > shape.most_threads) return cudaErrorInvalidValue;
    if (shared_bytes > static_cast<std::size_t>(function.most_dynamic_shared)) return cudaErrorInvalidValue;
    return cudaSuccess;
}

// Parameters as the kernel reads them, from one pointer to each.
std::vector<std::byte> pack(const ptx::KernelShape& shape, void** arguments) {
    const std::size_t count = shape.parameter_offsets.size();
    std::vector<std::byte> packed(count == 0 ? 0 : shape.parameter_offsets.back() + shape.parameter_bytes.back());
    for (std::size_t i = 0; i < count; ++i)
        std::memcpy(packed.data() + shape.parameter_offsets[i], arguments[i], shape.parameter_bytes[i]);
    return packed;
}

cudaError_t launch(const void* host_function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                   cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    ptx::RegisteredFunction* function = ptx::find_function(host_function);
    if (function == nullptr) return returned(cudaErrorInvalidDeviceFunction);
    if (!is_valid(stream) || resolve(stream).device != current_device())
        return returned(cudaErrorInvalidResourceHandle);
    Launch launch{function->short_name, nullptr, grid, block, static_cast<std::uint32_t>(shared_bytes), {}};
    try {
        launch.kernel = ptx::decoded(*function);
    } catch (const Error& error) {
        ptx::report(error.what());
        return returned(cudaErrorInvalidPtx);
    }
    if (launch.kernel == nullptr) return returned(cudaErrorNoKernelImageForDevice);
    const ptx::KernelShape& shape = ptx::shape(*launch.kernel);
    const cudaError_t error = check_configuration(*function, shape, grid, block, shared_bytes);
    if (error != cudaSuccess) return returned(error);
    launch.parameters = pack(shape, arguments);
    enqueue(stream, function->short_name.c_str(), [function, launch = std::move(launch)] {
        ++function->launches;
        launch.run();
    });
    return cudaSuccess;
}

struct Configuration {
    dim3 grid, block;
    std::size_t shared_bytes;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> pushed;  // by kernel<<<…>>>

}  // namespace

Architecture architecture() {
    const ptx::Settings& now = ptx::settings();
    return {now.architecture / 10, now.architecture % 10, now.shared_optin, now.shared_per_multiprocessor};
}

void note_allocated(const void* begin, std::size_t bytes, bool of_device) {
    global_memory().add(begin, bytes);
    if (!of_device) global_memory().mark_written(begin, bytes);  // the host writes it without saying so
}

void note_released(const void* begin) {
    global_memory().remove(begin);
}

void note_written(const void* begin, std::size_t bytes) {
    if (bytes > 0 && find_allocation(begin) != nullptr) global_memory().mark_written(begin, bytes);
}

cudaError_t take_kernel_failure() {
    return std::exchange(kernel_failed, false) ? cudaErrorLaunchFailure : cudaSuccess;
}

}  // namespace lockstep::emulation

using namespace lockstep::emulation;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
    if (config == nullptr) return returned(cudaErrorInvalidValue);
    if (config->numAttrs != 0) return returned(cudaErrorNotSupported);
    return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
    return launch(function, grid, block, arguments, shared_bytes, stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               cudaStream_t stream) {
    return launch(kernel, grid, block, arguments, shared_bytes, stream);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st* stream) {
    pushed.push_back({grid, block, shared_bytes, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
    if (pushed.empty()) return returned(cudaErrorInvalidConfiguration);
    *grid = pushed.back().grid;
    *block = pushed.back().block;
    *shared_bytes = pushed.back().shared_bytes;
    *static_cast<cudaStream_t*>(stream) = pushed.back().stream;
    pushed.pop_back();
    return cudaSuccess;
}

}  // extern "C"

cudaError_t cudaFuncSetAttribute(const void* address, cudaFuncAttribute attribute, int value) {
    const std::lock_guard lock(device_lock());
    lockstep::ptx::RegisteredFunction* function = lockstep::ptx::find_function(address);
    if (function == nullptr) return returned(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return returned(cudaErrorNotSupported);
    try {
        const lockstep::ptx::Kernel* kernel = lockstep::ptx::decoded(*function);
        if (kernel == nullptr) return returned(cudaErrorNoKernelImageForDevice);
        const int with_static = value + static_cast<int>(lockstep::ptx::shape(*kernel).static_shared_bytes);
        if (value < 0 || with_static > architecture().shared_optin) return returned(cudaErrorInvalidValue);
    } catch (const lockstep::Error& error) {
        lockstep::ptx::report(error.what());
        return returned(cudaErrorInvalidPtx);
    }
    function->most_dynamic_shared = value;
    return cudaSuccess;
}
