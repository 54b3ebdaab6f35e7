// The ranks along a divided sequence (context parallelism): each has a range of tokens, in order. A layer's state from
// earlier tokens (TTT's inner model, a convolution's inputs) is handed forward from rank to rank, and its gradient
// backward. A rank starts a layer as soon as its predecessor has finished it. Layers in which all tokens meet
// (attention) exchange messages among all ranks instead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "device/memory.hpp"
#include "trace/tracer.hpp"

namespace lockstep::model {

class ContextChain {
  public:
    ContextChain() = default;                                       // a single rank
    ContextChain(int rank, int size) : rank_(rank), size_(size) {}  // for planning
    // For counting: has neighbours on both sides, also as one of two ranks.
    static ContextChain in_the_middle(cluster::Communicator& transfers);
    ContextChain(cluster::Communicator& transfers, trace::Tracer* tracer, trace::RegionId region);
    int rank() const { return rank_; }
    int size() const { return size_; }
    bool alone() const { return size_ == 1; }
    bool first() const { return rank_ == 0 && !in_the_middle_; }
    bool last() const { return rank_ + 1 == size_ && !in_the_middle_; }
    void set_timed(bool timed) { timed_ = timed; }

    std::unique_ptr<cluster::Transfer> send(Tensor values, int to, int tag) const;
    std::unique_ptr<cluster::Transfer> exchange(const std::vector<cluster::Message>& messages, int tag) const;
    void receive(Tensor values, int from, int tag) const;
    void wait(std::unique_ptr<cluster::Transfer>& transfer) const;

  private:
    int rank_ = 0, size_ = 1;
    bool timed_ = true, in_the_middle_ = false;
    cluster::Communicator* transfers_ = nullptr;
    trace::Tracer* tracer_ = nullptr;
    trace::RegionId region_ = -1;
};

// One such state of one layer and micro-batch: its memory and pending messages.
class Handover {
  public:
    Handover() = default;
    // tag: unique to each handover of a model; this one and the next are used.
    Handover(Arena& arena, Type type, const Shape& shape, const ContextChain& chain, int tag);

    // Forward. `incoming` is empty on the first rank, `outgoing` on the last.
    void receive();
    Tensor incoming() const { return incoming_; }
    Tensor outgoing();  // to be written; waits until the previous send is complete
    void send();
    // Backward. `outgoing_gradient` is empty on the last rank, `incoming_gradient` on the first.
    void receive_gradient();
    Tensor outgoing_gradient() const { return outgoing_gradient_; }
    Tensor incoming_gradient();  // to be written
    void send_gradient();

    void finish();  // waits for pending sends

  private:
    const ContextChain* chain_ = nullptr;
    int tag_ = 0;
    Tensor incoming_, outgoing_, incoming_gradient_, outgoing_gradient_;
    std::unique_ptr<cluster::Transfer> sent_, sent_gradient_;
};

}  // namespace lockstep::model
