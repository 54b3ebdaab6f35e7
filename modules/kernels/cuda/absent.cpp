// Builds without the CUDA backend.
#include "base/error.hpp"
#include "kernels/cuda.hpp"

namespace lockstep::kernels {

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<CudaContext>) {
    throw usage_error(
        "this lockstep was built without the CUDA backend; configure with -DLOCKSTEP_CUDA=ON where the CUDA toolkit "
        "is");
}

}  // namespace lockstep::kernels
