// A GPU's operations, by family in the files of this folder: each .cu has kernels, their launch functions, and the
// member functions of its family.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda/context.hpp"
#include "kernels/backend.hpp"
#include "kernels/product_tuner.hpp"

namespace lockstep::kernels::cuda {

class CudaBackend final : public Backend {
  public:
    explicit CudaBackend(std::shared_ptr<CudaContext> context);
    ~CudaBackend() override;
#define LOCKSTEP_OPERATION(result, name, ...) result name __VA_ARGS__ override;
#include "kernels/operations.inc"

    std::unique_ptr<ProductTuner> make_product_tuner(const std::function<void(CountingBackend&)>& issue);

  private:
    cudaStream_t stream() const {
        return context_->compute();
    }
    int multiprocessors() const {
        return context_->properties().multiProcessorCount;
    }
    // Device scratch memory of one operation: `bytes`, 256-byte aligned, valid until the next operation asks. Grows and
    // is kept; earlier allocations stay valid, since recordings use their addresses.
    void* scratch(std::size_t bytes);
    template <class Element>
    Element* scratch_of(std::int64_t count) {
        return static_cast<Element*>(scratch(static_cast<std::size_t>(count) * sizeof(Element)));
    }

    class Scratch;
    class Products;  // cached cuBLASLt descriptors and algorithms, by shape (products.hpp)
    class Tuner;     // times those algorithms (product_tuner.cpp)
    class Slots;     // pinned memory for values on their way to the host (later.hpp)
    std::shared_ptr<CudaContext> context_;
    std::unique_ptr<Scratch> scratch_;
    std::unique_ptr<Products> products_;
    std::shared_ptr<Slots> slots_;
};

}  // namespace lockstep::kernels::cuda
