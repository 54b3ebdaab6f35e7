// The Communicator over MPI, on host memory. Only cluster/ includes this.
#pragma once

#include <mpi.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::cluster {

std::vector<int> all_ranks();  // of MPI_COMM_WORLD

class MpiCommunicator : public Communicator {
  public:
    // Collective over `ranks`, ranks of MPI_COMM_WORLD, ascending, this one among them.
    MpiCommunicator(const std::vector<int>& ranks, Use use, const std::string& name);
    ~MpiCommunicator() override;
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;
    void all_reduce(std::vector<double>& values, Reduce operation) override;
    void all_reduce(std::vector<std::int64_t>& values, Reduce operation) override;
    void broadcast(void* data, std::size_t bytes, int root) override;
    std::vector<char> gather(const void* data, std::size_t bytes, int root) override;
    std::vector<char> all_gather_bytes(const void* data, std::size_t bytes) override;
    void exchange(const std::vector<Block>& receives, const std::vector<Block>& sends) override;
    void barrier() override;

  protected:
    // In the sync mode `collective`: waits until all ranks are here, and says who waits for long.
    void meet(const char* what, std::size_t bytes);
    // Notes a communication of this group in the flight recorder. `peer`: its rank in this group.
    std::uint64_t note(FlightKind kind, std::size_t bytes, int peer = -1, bool on_device = false) const;
    int flight_group() const { return flight_group_; }
    // Faults where begin_send and begin_receive may not be called so.
    void check_transfer(int other, int tag) const;

  private:
    // Issues a collective on `values`, behind what was begun on the same memory.
    void begin(FlightKind kind, Tensor values, const std::function<void()>& issue);
    // A part of a collective: begun at once where there is room for it among what is being reduced, else by
    // finish_collectives. How many begin at once is the same on all ranks, so that all begin the same ones in the same
    // order, whatever other collectives come between. reduced_bytes: 0 for what is not reduced.
    struct Piece {
        std::size_t reduced_bytes = 0;
        std::function<void(MPI_Request*)> begin;
    };
    void add(Piece piece);
    void begin_what_has_room();

    // Memory that a collective under way reads or writes.
    struct Range {
        const char *first, *last;
    };
    MPI_Comm communicator_ = MPI_COMM_NULL;
    MPI_Comm exchanges_ = MPI_COMM_NULL;  // apart, so that no tag of begin_send meets them
    Use use_;
    int rank_ = 0, size_ = 1;
    std::vector<int> ranks_;  // of the world
    int flight_group_ = 0;
    std::vector<std::uint64_t> noted_;  // collectives under way, in the flight recorder
    std::vector<MPI_Request> under_way_;
    std::size_t reduced_at_once_ = 0;  // bytes
    std::deque<Piece> not_begun_;
    std::vector<Range> ranges_;
    std::int64_t met_ = 0;
};

}  // namespace lockstep::cluster
