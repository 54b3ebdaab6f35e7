// The GPUs visible to this process. Builds without the CUDA backend find none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.hpp"

namespace lockstep {

class CudaContext;

struct Gpu {
    int index = 0;
    std::string name, bus;  // "NVIDIA H200", PCI "0000:1b:00.0"
    std::uint64_t memory = 0;
    int multiprocessors = 0;
};
struct Gpus {
    std::vector<Gpu> list;
    std::string why_none;  // "the CUDA driver is not installed", …; empty if there are GPUs
};
const char* gpu_support();  // of this build: "13.0 with NCCL", "not in this build"
Gpus find_gpus();           // never throws; does not initialize the GPUs

// Shared, so that its users may be destroyed in any order.
std::shared_ptr<CudaContext> open_gpu(int index);
std::uint64_t free_gpu_memory(CudaContext& context);
// Pinned host memory, from which and to which the GPU copies by itself. Of the kind cpu; the context outlives it.
Device pinned_memory(CudaContext& context);

// Named ranges on a profiler's timeline (NVTX); no-op without a profiler.
void push_range(const char* name);
void pop_range();

class NamedRange {
  public:
    explicit NamedRange(const char* name) { push_range(name); }
    ~NamedRange() { pop_range(); }
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace lockstep
