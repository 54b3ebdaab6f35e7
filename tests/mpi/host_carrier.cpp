// Host memory and MPI.
#include <cstring>

#include "mpi/carrier.hpp"

namespace lockstep::test {
namespace {

class HostCarrier final : public Carrier {
  public:
    Device device() const override { return {}; }
    // Empty vectors have no address, which memcpy must not be given.
    void put(Tensor to, const void* from) override {
        if (to.bytes() > 0) std::memcpy(to.data(), from, to.bytes());
    }
    void get(void* to, Tensor from) override {
        if (from.bytes() > 0) std::memcpy(to, from.data(), from.bytes());
    }
    cluster::CommunicatorSource& source() override { return *source_; }
    std::unique_ptr<kernels::Backend> make_backend() override { return kernels::make_cpu_backend(); }

  private:
    std::unique_ptr<cluster::CommunicatorSource> source_ = cluster::make_mpi_communicator_source();
};

}  // namespace

std::unique_ptr<Carrier> make_carrier(const cluster::Session&) {
    return std::make_unique<HostCarrier>();
}

}  // namespace lockstep::test
