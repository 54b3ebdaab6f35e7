#include "model/context_chain.hpp"

namespace lockstep::model {
ContextChain::ContextChain(cluster::Communicator& transfers, trace::Tracer* tracer, trace::RegionId region)
    : rank_(transfers.rank()), size_(transfers.size()), transfers_(&transfers), tracer_(tracer), region_(region) {}

ContextChain ContextChain::in_the_middle(cluster::Communicator& transfers) {
    ContextChain chain(transfers, nullptr, -1);
    chain.in_the_middle_ = true;
    return chain;
}

std::unique_ptr<cluster::Transfer> ContextChain::send(Tensor values, int to, int tag) const {
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    return transfers_->begin_send(values, to, tag);
}

std::unique_ptr<cluster::Transfer> ContextChain::exchange(const std::vector<cluster::Message>& messages,
                                                          int tag) const {
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    return transfers_->begin_exchange(messages, tag);
}

void ContextChain::receive(Tensor values, int from, int tag) const {
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    transfers_->begin_receive(values, from, tag)->wait();
}

void ContextChain::wait(std::unique_ptr<cluster::Transfer>& transfer) const {
    if (!transfer) return;
    const trace::OptionalScope timed(timed_ ? tracer_ : nullptr, region_);
    transfer->wait();
    transfer.reset();
}

Handover::Handover(Arena& arena, Type type, const Shape& shape, const ContextChain& chain, int tag)
    : chain_(&chain), tag_(tag) {
    if (!chain.first()) {
        incoming_ = arena.allocate(type, shape);
        incoming_gradient_ = arena.allocate(type, shape);
    }
    if (!chain.last()) {
        outgoing_ = arena.allocate(type, shape);
        outgoing_gradient_ = arena.allocate(type, shape);
    }
}

void Handover::receive() {
    if (!chain_->first()) chain_->receive(incoming_, chain_->rank() - 1, tag_);
}

Tensor Handover::outgoing() {
    chain_->wait(sent_);
    return outgoing_;
}

void Handover::send() {
    if (!chain_->last()) sent_ = chain_->send(outgoing_, chain_->rank() + 1, tag_);
}

void Handover::receive_gradient() {
    if (!chain_->last()) chain_->receive(outgoing_gradient_, chain_->rank() + 1, tag_ + 1);
}

Tensor Handover::incoming_gradient() {
    chain_->wait(sent_gradient_);
    return incoming_gradient_;
}

void Handover::send_gradient() {
    if (!chain_->first()) sent_gradient_ = chain_->send(incoming_gradient_, chain_->rank() - 1, tag_ + 1);
}

void Handover::finish() {
    if (!chain_) return;
    chain_->wait(sent_);
    chain_->wait(sent_gradient_);
}

}  // namespace lockstep::model
