// Runs one kernel: its blocks one after another, the threads of a block as fibers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::emulation {

struct Kernel {
    std::string name;
    dim3 grid, block;
    std::size_t shared_bytes = 0;
    std::function<void()> thread;
};

// Usage of the launch that CUDA refuses: fault error.
void check_launch(const Kernel& kernel);
// Fault error for what the threads do wrong; what a thread throws otherwise comes out as it is.
void run_blocks(const Kernel& kernel);

// Random numbers from the seed; all calls share one sequence.
std::uint64_t draw();

// Whether the bytes lie in the shared memory of the block that runs.
bool in_shared_memory(const void* place, std::size_t bytes);

// Copies to shared memory beside the computation, of the thread that runs now.
void issue_copy(void* to, const void* from, bool valid);
void commit_copies();
void await_copies(int pending);

}  // namespace lockstep::emulation
