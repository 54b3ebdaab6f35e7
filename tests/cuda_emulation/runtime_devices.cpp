// The runtime API: errors, devices, memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/graphs.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/runtime_state.hpp"

using namespace lockstep::emulation;

namespace lockstep::emulation {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
    cudaError_t error;
    const char* name;
    const char* text;
};
constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& texts_of(cudaError_t error) {
    const auto* found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                     [&](const ErrorText& entry) { return entry.error == error; });
    return found == std::end(error_texts) ? error_texts[std::size(error_texts) - 1] : *found;
}

bool exists(int device) {
    return device >= 0 && device < device_count();
}

constexpr int multiprocessors = 4, level2_bytes = 50 << 20;

std::string bus_id(int device) {
    char text[32];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", device + 1);
    return text;
}

// CUDA waits for the device where memory is freed. Called in destructors, so that what a kernel did wrong is a code
// here.
cudaError_t free_after_work(Where where, void* memory) {
    const std::lock_guard lock(device_lock());
    if (memory == nullptr) return cudaSuccess;
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureUnsupported);
    cudaError_t result = cudaSuccess;
    try {
        work_until_all_idle(current_device());
        result = take_kernel_failure();
    } catch (const Error&) {
        result = cudaErrorLaunchFailure;
    }
    if (!release(where, memory)) result = cudaErrorInvalidValue;
    return returned(result);
}

cudaError_t new_memory(Where where, void** memory, std::size_t bytes) {
    const std::lock_guard lock(device_lock());
    if (memory == nullptr) return returned(cudaErrorInvalidValue);
    if (!exists(current_device())) return returned(cudaErrorNoDevice);
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureUnsupported);
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    *memory = allocate(where, bytes);
    return returned(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// Whether the bytes are all of one allocation of the device, or none of them is.
enum class Place { host, device, beyond };
Place place_of(const void* memory, std::size_t bytes) {
    const char* begin = nullptr;
    const Allocation* found = find_allocation(memory, &begin);
    if (found == nullptr) return Place::host;
    if (static_cast<const char*>(memory) + bytes > begin + found->bytes) return Place::beyond;
    return found->where == Where::device ? Place::device : Place::host;
}

bool valid_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const Place target = place_of(to, bytes), source = place_of(from, bytes);
    if (target == Place::beyond || source == Place::beyond) return false;
    const bool to_device = target == Place::device, from_device = source == Place::device;
    switch (kind) {
        case cudaMemcpyHostToHost:
            return !to_device && !from_device;
        case cudaMemcpyHostToDevice:
            return to_device && !from_device;
        case cudaMemcpyDeviceToHost:
            return !to_device && from_device;
        case cudaMemcpyDeviceToDevice:
            return to_device && from_device;
        case cudaMemcpyDefault:
            return true;
    }
    return false;
}

}  // namespace

cudaError_t returned(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

bool is_valid(cudaStream_t stream) {
    return exists(current_device()) && (stream == nullptr || is_stream(stream));
}

}  // namespace lockstep::emulation

const char* cudaGetErrorString(cudaError_t error) {
    return texts_of(error).text;
}

const char* cudaGetErrorName(cudaError_t error) {
    return texts_of(error).name;
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count();
    return returned(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
    if (!exists(device)) return returned(device_count() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice);
    set_current_device(device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = current_device();
    return returned(device_count() == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (!exists(device)) return returned(cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
    std::snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "emulated-%d", device % 1000);
    properties->totalGlobalMem = device_memory_bytes;
    properties->sharedMemPerBlock = shared_default;
    properties->sharedMemPerBlockOptin = architecture().shared_optin;
    properties->sharedMemPerMultiprocessor = architecture().shared_per_multiprocessor;
    properties->reservedSharedMemPerBlock = 1024;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    constexpr int dimensions[] = {1024, 1024, 64}, grid[] = {2147483647, 65535, 65535};
    std::copy(std::begin(dimensions), std::end(dimensions), properties->maxThreadsDim);
    std::copy(std::begin(grid), std::end(grid), properties->maxGridSize);
    properties->totalConstMem = 65536;
    properties->major = architecture().major;
    properties->minor = architecture().minor;
    properties->multiProcessorCount = multiprocessors;
    properties->canMapHostMemory = properties->concurrentKernels = properties->ECCEnabled = 1;
    properties->unifiedAddressing = properties->cooperativeLaunch = 1;
    properties->asyncEngineCount = 3;
    properties->memoryBusWidth = 5120;
    properties->l2CacheSize = level2_bytes;
    properties->maxThreadsPerMultiProcessor = threads_per_multiprocessor;
    properties->maxBlocksPerMultiProcessor = blocks_per_multiprocessor;
    properties->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = properties.maxThreadsPerBlock;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = shared_default;
            return cudaSuccess;
        case cudaDevAttrWarpSize:
            *value = properties.warpSize;
            return cudaSuccess;
        case cudaDevAttrClockRate:
        case cudaDevAttrMemoryClockRate:
            *value = 1000000;  // kHz
            return cudaSuccess;
        case cudaDevAttrMultiProcessorCount:
            *value = multiprocessors;
            return cudaSuccess;
        case cudaDevAttrPciBusId:
            *value = properties.pciBusID;
            return cudaSuccess;
        case cudaDevAttrPciDeviceId:
        case cudaDevAttrPciDomainId:
            *value = 0;
            return cudaSuccess;
        case cudaDevAttrGlobalMemoryBusWidth:
            *value = properties.memoryBusWidth;
            return cudaSuccess;
        case cudaDevAttrL2CacheSize:
            *value = properties.l2CacheSize;
            return cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = threads_per_multiprocessor;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = properties.major;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor:
            *value = properties.minor;
            return cudaSuccess;
        case cudaDevAttrStreamPrioritiesSupported:
            *value = 1;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(properties.sharedMemPerBlockOptin);
            return cudaSuccess;
        default:
            return returned(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    if (!exists(device)) return returned(cudaErrorInvalidDevice);
    if (length < 13) return returned(cudaErrorInvalidValue);
    std::snprintf(text, static_cast<std::size_t>(length), "%s", bus_id(device).c_str());
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
    for (*device = 0; *device < device_count(); ++*device)
        if (bus_id(*device) == text) return cudaSuccess;
    return returned(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = device_count() == 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const std::lock_guard lock(device_lock());
    if (!exists(current_device())) return returned(cudaErrorNoDevice);
    *total = device_memory_bytes;
    *free = device_memory_bytes - allocated_bytes(current_device());
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return new_memory(Where::device, memory, bytes);
}

cudaError_t cudaFree(void* memory) {
    return free_after_work(Where::device, memory);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    return new_memory(Where::pinned, memory, bytes);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return new_memory(Where::pinned, memory, bytes);
}

cudaError_t cudaFreeHost(void* memory) {
    return free_after_work(Where::pinned, memory);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    if (!valid_copy(to, from, bytes, kind)) return returned(cudaErrorInvalidValue);
    enqueue(stream, "memcpy", [=] {
        std::memmove(to, from, bytes);
        note_written(to, bytes);
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (width > to_pitch || width > from_pitch) return returned(cudaErrorInvalidPitchValue);
    for (std::size_t row = 0; row < height; ++row) {
        const cudaError_t result =
            cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                            width, kind, stream);
        if (result != cudaSuccess) return result;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const std::lock_guard lock(device_lock());
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureImplicit);
    const cudaError_t result = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    if (result != cudaSuccess) return result;
    work_until_idle(resolve(nullptr));
    return returned(take_kernel_failure());
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (bytes == 0) return cudaSuccess;
    if (place_of(to, bytes) != Place::device) return returned(cudaErrorInvalidValue);
    enqueue(stream, "memset", [=] {
        std::memset(to, value, bytes);
        note_written(to, bytes);
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    const std::lock_guard lock(device_lock());
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureImplicit);
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
    const Allocation* found = find_allocation(memory);
    auto* pointer = const_cast<void*>(memory);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -1;
    attributes->hostPointer = pointer;
    if (found != nullptr) {
        const bool of_device = found->where == Where::device;
        attributes->type = of_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        attributes->device = found->device;
        attributes->devicePointer = pointer;
        if (of_device) attributes->hostPointer = nullptr;
    }
    return cudaSuccess;
}
