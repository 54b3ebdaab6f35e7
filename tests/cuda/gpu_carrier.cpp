// A GPU of each rank, or one that they share.
#include <cstdlib>

#include "cluster/gpu_communicator.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#include "mpi/carrier.hpp"

namespace lockstep::test {
namespace {

class GpuCarrier final : public Carrier {
  public:
    explicit GpuCarrier(const cluster::Session& session) {
        setenv("LOCKSTEP_EMULATED_GPUS", LOCKSTEP_TEST_GPUS, 1);
        const Gpus gpus = find_gpus();
        const Gpu& gpu = gpus.list.at(static_cast<std::size_t>(session.rank()) % gpus.list.size());
        context_ = open_gpu(gpu.index);
        source_ = cluster::make_gpu_communicator_source(context_, session.place().host + " " + gpu.bus);
        const bool nccl = source_->carrier().rfind("NCCL", 0) == 0;
        if (nccl != (gpus.list.size() > 1)) throw fault_error("the carrier is {}", source_->carrier());
    }
    Device device() const override { return context_->device(); }
    void put(Tensor to, const void* from) override { context_->upload(to.data(), from, to.bytes()); }
    void get(void* to, Tensor from) override { context_->download(to, from.data(), from.bytes()); }
    cluster::CommunicatorSource& source() override { return *source_; }
    std::unique_ptr<kernels::Backend> make_backend() override { return kernels::make_cuda_backend(context_); }

  private:
    std::shared_ptr<CudaContext> context_;
    std::unique_ptr<cluster::CommunicatorSource> source_;
};

}  // namespace

std::unique_ptr<Carrier> make_carrier(const cluster::Session& session) {
    return std::make_unique<GpuCarrier>(session);
}

}  // namespace lockstep::test
