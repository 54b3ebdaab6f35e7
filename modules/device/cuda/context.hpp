// One GPU as this process uses it: its memory, its two streams, pinned memory to pass through. Whoever computes or
// communicates on the GPU shares one context.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/handles.hpp"
#include "device/memory.hpp"

namespace lockstep {

class CudaContext {
  public:
    explicit CudaContext(int index);  // makes this GPU the process's; fault or usage errors say what is missing
    ~CudaContext();
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;

    Device device() const;
    const cudaDeviceProp& properties() const { return properties_; }
    cudaStream_t compute() const { return compute_.get(); }              // what a Backend issues
    cudaStream_t communication() const { return communication_.get(); }  // of higher priority
    void synchronize();                                                  // waits for both
    // For communication that is not to wait for other communication: another stream of that priority.
    CudaStream make_communication_stream() const;

    // `later` waits, on the GPU, for all that was issued to `earlier` so far. The host does not wait.
    void order(cudaStream_t earlier, cudaStream_t later);

    // The host waits. What hangs is not to hang it for ever: `look` is called now and then, and may throw.
    void wait(const CudaEvent& event) const;
    void set_while_waiting(std::function<void()> look) { while_waiting_ = std::move(look); }

    // Through a ring of pinned memory on the compute stream: the source may be reused on return. One thread at a time.
    void upload(void* destination, const void* source, std::size_t bytes);
    void download(void* destination, const void* source, std::size_t bytes);  // waits

  private:
    class Memory;
    class Staging;
    int index_;
    cudaDeviceProp properties_{};
    CudaStream compute_, communication_;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Staging> staging_;
    std::vector<CudaEvent> events_;  // for order(), used in turn
    std::size_t next_event_ = 0;
    std::function<void()> while_waiting_;
};

}  // namespace lockstep
