// The emulated device as its tests see it: kernels run as fibers in one OS thread, one block after another; streams are
// queues that are worked off only when somebody waits, in an order that stream order and events alone constrain.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::emulation {

// What draws the order of a block's threads, of blocks, and of streams. 0, the default: threads and blocks by number,
// operations in the order they were issued, asynchronous copies as late as allowed. LOCKSTEP_EMULATION_SEED sets the
// first.
void set_seed(std::uint64_t seed);
std::uint64_t seed();

// Queues a kernel: `thread` is run once by every thread of every block. Fault error, at once or when somebody waits
// for the stream, that names kernel, block and threads.
void run(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
         std::function<void()> thread);

// Queues work of a library (cuBLASLt, NCCL) on a stream; a graph records it while the stream is being captured.
void enqueue(cudaStream_t stream, const char* name, std::function<void()> work);
// The same for work that needs other ranks: called again and again until it returns true, other streams go on
// meanwhile.
void enqueue_polled(cudaStream_t stream, const char* name, std::function<bool()> work);

// Events recorded from now on are this much later.
void pass_time(double seconds);

// Device and pinned allocations that nobody has freed.
std::size_t live_allocations();
// Operations that are queued and not yet carried out.
std::size_t pending_operations();
// Kernels and other operations carried out since the last call, by name, in their order.
std::vector<std::string> take_executed();
// Names of the NVTX ranges pushed since the last call.
std::vector<std::string> take_nvtx_names();

}  // namespace lockstep::emulation
