// Collectives and messages of GPU tensors over NCCL, issued from one thread, in the same order on every rank.
#pragma once

#if defined(LOCKSTEP_NCCL)
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/cuda/nccl_channel.hpp"
#include "cluster/mpi_group.hpp"

namespace lockstep::cluster {

class NcclCommunicator final : public Communicator {
  public:
    // Collective over the group, through which the ranks exchange the unique id.
    NcclCommunicator(std::shared_ptr<MpiGroup> group, Use use, std::shared_ptr<CudaContext> context,
                     std::shared_ptr<NcclProcess> process);
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
    void begin(FlightKind kind, Tensor values, const std::function<void(ncclComm_t, cudaStream_t)>& issue);
    void open_collectives();  // collective, where they are not open yet
    void synchronize();
    // The channel for messages between these ranks.
    const NcclChannel& channel(int from, int to) const;
    std::unique_ptr<Transfer> begin_transfer(const NcclChannel& channel, const std::function<void()>& issue);

    std::shared_ptr<MpiGroup> group_;
    Use use_;
    std::shared_ptr<CudaContext> context_;
    std::shared_ptr<NcclProcess> process_;
    std::unique_ptr<NcclChannel> collectives_;  // of a group for transfers: null until its first collective
    // Messages of a channel are serialized. In a ring, a rank's sends must not wait for its receives, nor messages up
    // the ring for those down: so each direction has one channel for even senders, one for odd ones, and one for the
    // last if it and the first are both even.
    std::array<std::unique_ptr<NcclChannel>, 6> transfers_;
    bool any_begun_ = false;
};

}  // namespace lockstep::cluster
#endif
