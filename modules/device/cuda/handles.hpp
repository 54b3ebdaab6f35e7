// RAII for CUDA runtime objects.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "device/cuda/check.hpp"
#include "device/cuda/wait.hpp"

namespace lockstep {

class CudaStream {
  public:
    CudaStream() = default;
    explicit CudaStream(
        int priority) {  // lower is higher priority; does not synchronize with the legacy default stream
        check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "creating a stream");
    }
    CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    CudaStream& operator=(CudaStream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    ~CudaStream() {
        if (stream_) static_cast<void>(cudaStreamDestroy(stream_));  // the driver may be gone at exit
    }
    cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

// A point in a stream's work to wait for. Without timing, which has a cost.
class CudaEvent {
  public:
    CudaEvent() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
    CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    CudaEvent& operator=(CudaEvent&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    ~CudaEvent() {
        if (event_) static_cast<void>(cudaEventDestroy(event_));
    }
    void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "recording an event"); }
    // The host waits, or looks; both are through at once if nothing was recorded.
    void wait() const { wait_for(event_, "waiting for the GPU"); }
    bool done() const { return is_done(event_, "waiting for the GPU"); }
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

// Pinned host memory, for asynchronous copies.
class PinnedMemory {
  public:
    PinnedMemory() = default;
    explicit PinnedMemory(std::size_t bytes) {
        check_cuda(cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault), "allocating pinned host memory");
    }
    PinnedMemory(PinnedMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    PinnedMemory& operator=(PinnedMemory&& other) noexcept {
        std::swap(memory_, other.memory_);
        return *this;
    }
    ~PinnedMemory() {
        if (memory_) static_cast<void>(cudaFreeHost(memory_));
    }
    char* data() const { return static_cast<char*>(memory_); }

  private:
    void* memory_ = nullptr;
};

}  // namespace lockstep
