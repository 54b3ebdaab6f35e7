// Values on their way from the GPU: pinned target memory and the event after the copy, reused.
#pragma once

#include <memory>
#include <vector>

#include "device/cuda/context.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {

class CudaBackend::Slots : public std::enable_shared_from_this<CudaBackend::Slots> {
  public:
    explicit Slots(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

    std::unique_ptr<Later> read(const double* source, std::size_t count);

  private:
    struct Slot {
        PinnedMemory memory;
        std::size_t count;
        CudaEvent arrived;
    };
    class Values;
    Slot take(std::size_t count);

    std::shared_ptr<CudaContext> context_;
    std::vector<Slot> free_;
};

}  // namespace lockstep::kernels::cuda
