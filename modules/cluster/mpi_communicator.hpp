// The Communicator over MPI, on tensors in host memory. Only cluster/ includes this.
#pragma once

#include <mpi.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "cluster/mpi_group.hpp"

namespace lockstep::cluster {

class MpiCommunicator final : public Communicator {
  public:
    // `use`: what the group was made for.
    MpiCommunicator(std::shared_ptr<MpiGroup> group, Use use) : group_(std::move(group)), use_(use) {}
    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;

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
    std::shared_ptr<MpiGroup> group_;
    Use use_;
    std::vector<std::uint64_t> noted_;  // collectives under way, in the flight recorder
    std::vector<MPI_Request> under_way_;
    std::size_t reduced_at_once_ = 0;  // bytes
    std::deque<Piece> not_begun_;
    std::vector<Range> ranges_;
};

}  // namespace lockstep::cluster
