// Builds without the CUDA backend.
#include "base/error.hpp"
#include "kernels/cuda.hpp"

namespace lockstep::kernels {

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<CudaContext>) {
    throw usage_error(
        "this lockstep was built without the CUDA backend; configure with -DLOCKSTEP_CUDA=ON where the CUDA toolkit "
        "is");
}

std::unique_ptr<ProductTuner> make_product_tuner(Backend&, const std::function<void(CountingBackend&)>&) {
    return nullptr;
}

}  // namespace lockstep::kernels
