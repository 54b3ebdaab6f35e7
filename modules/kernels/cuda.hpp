// The backend of one GPU.
#pragma once

#include <memory>

#include "kernels/backend.hpp"

namespace lockstep {
class CudaContext;
}

namespace lockstep::kernels {

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<CudaContext> context);

}  // namespace lockstep::kernels
