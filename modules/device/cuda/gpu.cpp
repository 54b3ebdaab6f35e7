#include "device/gpu.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/context.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LOCKSTEP_NVTX 1
#endif

namespace lockstep {
namespace {

std::string version_text(int version) {  // 13020 is 13.2
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string why_none(cudaError_t result) {
    int driver = 0, runtime = 0;
    const bool asked = cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess;
    static_cast<void>(cudaGetLastError());
    if (asked && driver == 0) return "no CUDA driver is installed on this machine";
    if (result == cudaErrorInsufficientDriver)
        return fmt::format(
            "this machine's CUDA driver supports CUDA {}, but lockstep was built with CUDA {}; "
            "update the driver or build with an older toolkit",
            version_text(driver), version_text(runtime));
    if (result == cudaSuccess || result == cudaErrorNoDevice) {
        const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
        if (visible) return fmt::format("no GPU is visible to this process; CUDA_VISIBLE_DEVICES is '{}'", visible);
        return "the CUDA driver sees no GPU on this machine";
    }
    return fmt::format("the CUDA driver failed to initialize: {} ({})", cudaGetErrorString(result),
                       cudaGetErrorName(result));
}

std::string bus_of(int index) {
    char bus[32] = "";
    check_cuda(cudaDeviceGetPCIBusId(bus, static_cast<int>(sizeof(bus)), index), "querying the GPU's PCI bus id");
    std::string text = bus;
    // In the form of Linux and hwloc.
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return text;
}

}  // namespace

const char* gpu_support() {
    static const std::string text = fmt::format("{}.{}{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
#if defined(LOCKSTEP_NCCL)
                                                " with NCCL"
#else
                                                " without NCCL"
#endif
    );
    return text.c_str();
}

Gpus find_gpus() {
    // The maximum number of hardware queues, so that a waiting stream does not delay others. Before CUDA initializes.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    // CUDA_VISIBLE_DEVICES then uses the system's and job schedulers' numbering.
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    Gpus gpus;
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
        gpus.why_none = why_none(result);
        return gpus;
    }
    try {
        for (int index = 0; index < count; ++index) {
            cudaDeviceProp properties{};
            check_cuda(cudaGetDeviceProperties(&properties, index), "querying the GPU's properties");
            gpus.list.push_back(
                {index, properties.name, bus_of(index), properties.totalGlobalMem, properties.multiProcessorCount});
        }
    } catch (const Error& error) {
        gpus.list.clear();
        gpus.why_none = error.what();
    }
    return gpus;
}

std::shared_ptr<CudaContext> open_gpu(int index) {
    const Gpus gpus = find_gpus();
    if (gpus.list.empty()) throw usage_error("GPU {} cannot be used: {}", index, gpus.why_none);
    if (index < 0 || static_cast<std::size_t>(index) >= gpus.list.size())
        throw usage_error("GPU {} cannot be used: this process sees {}, numbered from 0", index,
                          gpus.list.size() == 1 ? "one GPU" : fmt::format("{} GPUs", gpus.list.size()));
    return std::make_shared<CudaContext>(index);
}

std::uint64_t free_gpu_memory(CudaContext& context) {
    check_cuda(cudaSetDevice(context.device().index), "selecting the GPU");
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "querying free memory");
    return free;
}

Device pinned_memory(CudaContext& context) {
    return context.pinned();
}

void push_range([[maybe_unused]] const char* name) {
#if defined(LOCKSTEP_NVTX)
    nvtxRangePushA(name);
#endif
}

void pop_range() {
#if defined(LOCKSTEP_NVTX)
    nvtxRangePop();
#endif
}

}  // namespace lockstep
