// All kernels are launched here: launches are named, errors name them, and the sync mode `launch` can wait after each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "device/cuda/check.hpp"
#include "device/sync.hpp"
#include "kernels/cuda/hardware.hpp"

namespace lockstep::kernels::cuda {

struct Launch {
    const char* name;  // the kernel's, as in docs/kernels.md
    dim3 grid;
    unsigned threads;          // of a block
    std::size_t shared_bytes;  // dynamic shared memory of a block
    cudaStream_t stream;
};

inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
    return static_cast<unsigned>((count + each - 1) / each);
}

// kernel<<<…>>>(arguments…); no-op for an empty grid. Arguments are converted to the kernel's parameter types.
template <class... Parameters, class... Arguments>
void launch(const Launch& where, void (*kernel)(Parameters...), Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "as many arguments as the kernel has parameters");
    if (where.grid.x == 0 || where.grid.y == 0 || where.grid.z == 0) return;
#if defined(LOCKSTEP_CUDA_EMULATION)
    emulation::run(where.name, where.grid, dim3(where.threads, 1, 1), where.shared_bytes, where.stream,
                   [=] { kernel(static_cast<Parameters>(arguments)...); });
#else
    allow_shared_memory(reinterpret_cast<const void*>(kernel), where.shared_bytes, where.name);
    cudaLaunchConfig_t configuration{};
    configuration.gridDim = where.grid;
    configuration.blockDim = dim3(where.threads, 1, 1);
    configuration.dynamicSmemBytes = where.shared_bytes;
    configuration.stream = where.stream;
    check_cuda(
        cudaLaunchKernelEx(&configuration, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...),
        where.name);
#endif
    if (sync_mode() == SyncMode::launch) after_launch(where.name, where.stream);
}

}  // namespace lockstep::kernels::cuda
