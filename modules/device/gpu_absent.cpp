// Builds without the CUDA backend.
#include "base/error.hpp"
#include "device/gpu.hpp"

namespace lockstep {
namespace {
constexpr const char* reason =
    "this lockstep was built without the CUDA backend; configure with -DLOCKSTEP_CUDA=ON where the CUDA toolkit is";
}

const char* gpu_support() {
    return "not in this build";
}

Gpus find_gpus() {
    return {{}, reason};
}

std::shared_ptr<CudaContext> open_gpu(int index) {
    throw usage_error("GPU {} cannot be used: {}", index, reason);
}

std::uint64_t free_gpu_memory(CudaContext&) {
    throw usage_error("no GPU: {}", reason);
}

Device pinned_memory(CudaContext&) {
    throw usage_error("no GPU: {}", reason);
}

void push_range(const char*) {}
void pop_range() {}

}  // namespace lockstep
