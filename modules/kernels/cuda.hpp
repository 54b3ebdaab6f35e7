// The backend of one GPU.
#pragma once

#include <memory>

#include "kernels/backend.hpp"
#include "kernels/product_tuner.hpp"

namespace lockstep {
class CudaContext;
}

namespace lockstep::kernels {

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<CudaContext> context);

// For the products among the operations that `issue` calls, once, on a backend that has the tensors' sizes and
// alignment and no memory. Null for other backends than the above, which have no choice. The backend outlives it.
std::unique_ptr<ProductTuner> make_product_tuner(Backend& backend, const std::function<void(CountingBackend&)>& issue);

}  // namespace lockstep::kernels
