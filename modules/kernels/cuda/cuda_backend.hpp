// A GPU's operations, spread over the files of this folder by family: each .cu holds kernels, the functions that launch
// them, and the member functions of its family.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda/context.hpp"
#include "kernels/backend.hpp"

namespace lockstep::kernels::cuda {

class CudaBackend final : public Backend {
  public:
    explicit CudaBackend(std::shared_ptr<CudaContext> context);
    ~CudaBackend() override;
#define LOCKSTEP_OPERATION(result, name, ...) result name __VA_ARGS__ override;
#include "kernels/operations.inc"

  private:
    cudaStream_t stream() const {
        return context_->compute();
    }
    int multiprocessors() const {
        return context_->properties().multiProcessorCount;
    }
    // Device memory that one operation works in: `bytes` of it, 256-byte aligned, valid until the next operation asks.
    // It grows and is kept; what was handed out before stays allocated, so that recordings remain valid.
    void* scratch(std::size_t bytes);
    template <class Element>
    Element* scratch_of(std::int64_t count) {
        return static_cast<Element*>(scratch(static_cast<std::size_t>(count) * sizeof(Element)));
    }

    class Scratch;
    class Products;  // cuBLASLt's descriptors and algorithms, kept by shape (products.hpp)
    class Slots;     // where values on their way to the host arrive (later.hpp)
    std::shared_ptr<CudaContext> context_;
    std::unique_ptr<Scratch> scratch_;
    std::unique_ptr<Products> products_;
    std::shared_ptr<Slots> slots_;
};

}  // namespace lockstep::kernels::cuda
