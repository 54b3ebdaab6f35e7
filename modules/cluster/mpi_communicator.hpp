// Communicator over MPI, for host tensors. Only cluster/ includes this.
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
    MpiCommunicator(std::shared_ptr<MpiGroup> group, Use use) : group_(std::move(group)), use_(use) {}
    ~MpiCommunicator() override;
    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    void all_reduce(Tensor values, Reduce operation) override;
    void begin_all_reduce(Tensor values, Reduce operation) override;
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>& cuts) override;
    void finish_collectives() override;
    std::unique_ptr<Transfer> begin_send(Tensor values, int to, int tag) override;
    std::unique_ptr<Transfer> begin_receive(Tensor values, int from, int tag) override;
    std::unique_ptr<Transfer> begin_exchange(const std::vector<Message>& messages, int tag) override;

  private:
    // Issues a collective on `values`, ordered after pending ones on the same memory.
    void begin(FlightKind kind, Tensor values, const std::function<void()>& issue);
    // Part of a collective. Started if it fits the limit on concurrent reductions, else queued for finish_collectives.
    // The number started is the same on all ranks, so all start the same segments in the same order, whatever
    // collectives come between. reduced_bytes: 0 unless it is a reduction.
    struct Segment {
        std::size_t reduced_bytes = 0;
        std::function<void(MPI_Request*)> begin;
        std::function<void()> end = {};  // once it is complete; may be empty
    };
    void add(Segment segment);
    void reduce_to(int owner, Tensor segment);
    // Needs memory of this rank's part beside what a reduction takes, while it is pending.
    void reduce_scatter(Tensor segment, std::vector<int> counts);
    void broadcast_from(int owner, Tensor part);
    void begin_queued();

    // Memory in use by a pending collective.
    struct Range {
        const char *first, *last;
    };
    std::shared_ptr<MpiGroup> group_;
    Use use_;
    std::vector<std::uint64_t> noted_;  // pending collectives in the flight recorder
    std::vector<MPI_Request> pending_;
    std::deque<Segment> begun_;  // those of pending_; MPI reads and writes arrays that they hold
    std::size_t reducing_bytes_ = 0;
    std::deque<Segment> queued_;
    std::vector<Range> ranges_;
};

}  // namespace lockstep::cluster
