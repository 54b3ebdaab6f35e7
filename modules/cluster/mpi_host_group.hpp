// HostGroup over MPI. Only cluster/ includes this.
#pragma once

#include <memory>

#include "cluster/host_group.hpp"
#include "cluster/mpi_group.hpp"

namespace lockstep::cluster {

class MpiHostGroup final : public HostGroup {
  public:
    MpiHostGroup(const std::vector<int>& ranks, const std::string& name)
        : MpiHostGroup(std::make_shared<MpiGroup>(ranks, name)) {}
    // Shares an MPI communicator; its other user's point-to-point messages must not mix with exchange().
    explicit MpiHostGroup(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}
    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    void all_reduce(std::vector<double>& values, Reduce operation) override;
    void all_reduce(std::vector<std::int64_t>& values, Reduce operation) override;
    void broadcast(void* data, std::size_t bytes, int root) override;
    std::vector<char> gather(const void* data, std::size_t bytes, int root) override;
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override;
    void exchange(const std::vector<HostMessage>& receives, const std::vector<HostMessage>& sends) override;
    void barrier() override;

  private:
    std::shared_ptr<MpiGroup> group_;
};

}  // namespace lockstep::cluster
