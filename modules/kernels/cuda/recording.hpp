// Recordings: a stream's operations, captured into a CUDA graph that one call launches.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "device/cuda/context.hpp"
#include "kernels/backend.hpp"

namespace lockstep::kernels::cuda {

class CudaRecording final : public Recording {
  public:
    // Captures what `issue` puts on the context's compute stream. Errors propagate, and the stream stays usable.
    CudaRecording(std::shared_ptr<CudaContext> context, const std::function<void()>& issue);
    ~CudaRecording() override;
    CudaRecording(const CudaRecording&) = delete;
    CudaRecording& operator=(const CudaRecording&) = delete;
    void run() override;

  private:
    std::shared_ptr<CudaContext> context_;
    cudaGraphExec_t graph_ = nullptr;
};

bool is_recording(cudaStream_t stream);

}  // namespace lockstep::kernels::cuda
