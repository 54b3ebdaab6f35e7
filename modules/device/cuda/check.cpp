#include "device/cuda/check.hpp"

#include <unordered_map>

#include "base/error.hpp"
#include "device/cuda/wait.hpp"

namespace lockstep {

void check_cuda(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return;
    const std::string sentence = fmt::format("GPU error in {}", what);
    static_cast<void>(cudaGetLastError());  // clears the error, reported here, for the next check
    if (result == cudaErrorMemoryAllocation)
        throw usage_error("{}: out of memory; use a smaller model, batch.micro or batch.length, or more GPUs",
                          sentence);
    if (result == cudaErrorNoKernelImageForDevice)
        throw usage_error(
            "{}: this lockstep was not built for this GPU; configure with -DLOCKSTEP_CUDA_ARCHITECTURES=… for its "
            "compute capability",
            sentence);
    throw fault_error("{}: {} ({})", sentence, cudaGetErrorString(result), cudaGetErrorName(result));
}

void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name) {
    constexpr std::size_t always_allowed = 48 * 1024;
    if (bytes <= always_allowed) return;
    static std::unordered_map<const void*, std::size_t> allowed;  // launches come from one thread
    std::size_t& most = allowed[kernel];
    if (bytes <= most) return;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
               name);
    most = bytes;
}

void after_launch(const char* kernel, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &status), kernel);
    if (status != cudaStreamCaptureStatusNone) return;
    const std::string doing = fmt::format("kernel {}", kernel);
    check_cuda(cudaGetLastError(), doing.c_str());
    wait_for(stream, doing.c_str());
}

}  // namespace lockstep
