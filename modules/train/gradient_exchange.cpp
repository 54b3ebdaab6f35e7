#include "train/gradient_exchange.hpp"

namespace lockstep::train {

void GradientExchange::begin(std::size_t number) {
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    const Tensor gradients = state_.parameters->all_gradients();
    for (const std::size_t index : bucket.partial) tensor_group_.sum(state_.parameters->part(gradients, index));
    if (groups_.replicas->size() == 1) return;
    const Tensor range = gradients.slice(bucket.range.first, bucket.range.count);
    if (state_.divided)
        groups_.replicas->begin_reduce_scatter(range, bucket.cuts);
    else
        groups_.replicas->begin_all_reduce(range, cluster::Reduce::sum);
}

void GradientExchange::finish(Tensor loss) {
    // Both ends of the pipeline have gradients of a tied table; the sum keeps their copies equal.
    if (const auto tied = state_.gradient_plan.tied) {
        const layout::Bucket& bucket = state_.gradient_plan.buckets[*tied];
        groups_.ends->all_reduce(state_.parameters->all_gradients().slice(bucket.range.first, bucket.range.count),
                                 cluster::Reduce::sum);
        begin(*tied);
    }
    devices_.communicator->begin_all_reduce(loss, cluster::Reduce::sum);
    devices_.communicator->finish_collectives();
    groups_.replicas->finish_collectives();
}

void gather_parameters(const TrainingState& state, const cluster::ProcessGroups& groups) {
    if (!state.divided) return;
    for (const layout::Bucket& bucket : state.gradient_plan.buckets)
        for (const auto& shared : state.parameters->shared(bucket.range, bucket.cuts))
            groups.replicas->begin_all_gather(shared.tensor, shared.cuts);
    groups.replicas->finish_collectives();
}

}  // namespace lockstep::train
