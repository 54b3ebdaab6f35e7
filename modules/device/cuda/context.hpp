// One GPU as this process uses it: memory, two streams, pinned staging buffers. Shared by all that compute or
// communicate on the GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/handles.hpp"
#include "device/memory.hpp"

namespace lockstep {

class CudaContext {
  public:
    explicit CudaContext(int index);  // selects this GPU for the process; fault or usage errors say what is missing
    ~CudaContext();
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;

    Device device() const;
    Device pinned() const;  // host memory that the GPU copies from and to by itself
    const cudaDeviceProp& properties() const { return properties_; }
    cudaStream_t compute() const { return compute_.get(); }              // for a Backend
    cudaStream_t communication() const { return communication_.get(); }  // higher priority
    void synchronize();                                                  // both
    // An additional stream of that priority, for communication that must not wait for other communication.
    CudaStream make_communication_stream() const;

    // `later` waits, on the GPU, for all work issued to `earlier` so far. Does not block the host.
    void order(cudaStream_t earlier, cudaStream_t later);

    // Through the pinned buffers on the compute stream: the source may be reused on return. One thread at a time.
    void upload(void* destination, const void* source, std::size_t bytes);
    void download(void* destination, const void* source, std::size_t bytes);  // blocking

  private:
    class Memory;
    class Pinned;
    class Staging;
    int index_;
    cudaDeviceProp properties_{};
    CudaStream compute_, communication_;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Pinned> pinned_;
    std::unique_ptr<Staging> staging_;
    std::vector<CudaEvent> events_;  // for order(), round robin
    std::size_t next_event_ = 0;
};

}  // namespace lockstep
