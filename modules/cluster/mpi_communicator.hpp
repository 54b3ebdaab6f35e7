// The Communicator over MPI, on host memory. Only cluster/ includes this.
#pragma once

#include <mpi.h>

#include <vector>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

class MpiCommunicator : public Communicator {
  public:
    explicit MpiCommunicator(MPI_Comm parent);  // collective over parent: duplicates it
    ~MpiCommunicator() override;
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void finish_all_reduces() override;
    void all_reduce(std::vector<double>& values, Reduce operation) override;
    void all_reduce(std::vector<std::int64_t>& values, Reduce operation) override;
    void broadcast(void* data, std::size_t bytes, int root) override;
    std::vector<char> gather(const void* data, std::size_t bytes, int root) override;
    void barrier() override;
    void exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) override;
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override;

  protected:
    // In the sync mode `collective`: waits until all ranks are here, and says who waits for long.
    void meet(const char* what, std::size_t bytes);

  private:
    MPI_Comm communicator_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    std::vector<MPI_Request> under_way_;
    std::int64_t met_ = 0;
};

}  // namespace lockstep::cluster
