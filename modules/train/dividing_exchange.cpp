#include "train/dividing_exchange.hpp"

namespace lockstep::train {

DividingExchange::DividingExchange(const Launch& launch, const TrainingState& state,
                                   const model::TensorGroup& tensor_group, trace::Tracer* tracer,
                                   const Regions& regions)
    : state_(state),
      devices_(launch.devices),
      groups_(launch.groups),
      tensor_group_(tensor_group),
      replica_(launch.groups.place.replica(launch.grid)),
      timer_{tracer, launch.devices},
      regions_(regions) {}

void DividingExchange::begin_step(bool exact) {
    exact_ = exact;
    has_sum_.assign(state_.gradient_plan.buckets.size(), false);
}

void DividingExchange::prepare(std::size_t bucket) {
    const auto& buckets = state_.gradient_plan.buckets;
    if (under_way_ && buckets[*under_way_].buffer == buckets[bucket].buffer) settle();
    state_.parameters->clear_gradients(*devices_.backend, buckets[bucket].range);
}

void DividingExchange::complete(std::size_t number, std::int64_t) {
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    sum_partial(*state_.parameters, bucket, tensor_group_);
    settle();
    groups_.replicas->begin_reduce_scatter(state_.parameters->gradients(bucket.range), bucket.cuts);
    under_way_ = number;
}

void DividingExchange::settle() {
    if (!under_way_) return;
    timer_.phase(exact_, regions_.communication.data, "communication", [&] { groups_.replicas->finish_collectives(); });
    const model::Piece piece = state_.gradient_plan.buckets[*under_way_].owned(replica_);
    if (piece.count > 0) {
        const Tensor sum = state_.parameters->owned_gradients(piece), gradients = state_.parameters->gradients(piece);
        if (has_sum_[*under_way_])
            devices_.backend->add(sum, gradients);
        else
            devices_.backend->copy(sum, gradients);
    }
    has_sum_[*under_way_] = true;
    under_way_.reset();
}

void DividingExchange::finish(Tensor losses) {
    exact_ = false;  // the caller times this as communication
    settle();
    // Both ends of the pipeline have gradients of a tied table; the sum keeps their copies equal.
    if (const auto tied = state_.gradient_plan.tied; tied && groups_.ends->size() > 1) {
        const model::Piece piece = state_.gradient_plan.buckets[*tied].owned(replica_);
        if (piece.count > 0) groups_.ends->all_reduce(state_.parameters->owned_gradients(piece), cluster::Reduce::sum);
    }
    devices_.communicator->begin_all_reduce(losses, cluster::Reduce::sum);
    devices_.communicator->finish_collectives();
}

}  // namespace lockstep::train
