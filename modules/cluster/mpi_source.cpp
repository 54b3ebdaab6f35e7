#include "cluster/mpi_communicator.hpp"

namespace lockstep::cluster {
namespace {

class MpiCommunicatorSource final : public CommunicatorSource {
  public:
    std::unique_ptr<Communicator> make(const std::vector<int>& ranks, Use use, const std::string& name) override {
        if (ranks.size() == 1) return make_solo_communicator();
        return std::make_unique<MpiCommunicator>(std::make_shared<MpiGroup>(ranks, name), use);
    }
    const std::string& carrier() const override { return carrier_; }

  private:
    std::string carrier_ = "MPI";
};

}  // namespace

std::unique_ptr<CommunicatorSource> make_mpi_communicator_source() {
    return std::make_unique<MpiCommunicatorSource>();
}

}  // namespace lockstep::cluster
