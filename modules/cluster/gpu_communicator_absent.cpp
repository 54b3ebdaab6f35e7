// For builds without the CUDA backend, which find no GPU.
#include "cluster/gpu_communicator.hpp"

namespace lockstep::cluster {

std::unique_ptr<CommunicatorSource> make_gpu_communicator_source(std::shared_ptr<CudaContext>, const std::string&) {
    throw fault_error("this lockstep was built without the CUDA backend");
}

}  // namespace lockstep::cluster
