#include "train/gradient_exchange.hpp"

#include "train/dividing_exchange.hpp"
#include "train/lane_exchange.hpp"

namespace lockstep::train {
namespace {

class ReducingExchange final : public GradientExchange {
  public:
    ReducingExchange(const Launch& launch, const TrainingState& state, const model::TensorGroup& tensor_group)
        : state_(state), devices_(launch.devices), groups_(launch.groups), tensor_group_(tensor_group) {}

    void complete(std::size_t bucket, std::int64_t) override {
        if (bucket != state_.gradient_plan.tied) begin(bucket);
    }

    void finish(Tensor losses) override {
        // Both ends of the pipeline have gradients of a tied table; the sum keeps their copies equal.
        if (const auto tied = state_.gradient_plan.tied) {
            const layout::Bucket& bucket = state_.gradient_plan.buckets[*tied];
            groups_.ends->all_reduce(state_.parameters->gradients(bucket.range), cluster::Reduce::sum);
            begin(*tied);
        }
        devices_.communicator->begin_all_reduce(losses, cluster::Reduce::sum);
        devices_.communicator->finish_collectives();
        groups_.replicas->finish_collectives();
    }

  private:
    void begin(std::size_t number) {
        const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
        sum_partial(*state_.parameters, bucket, tensor_group_);
        if (groups_.replicas->size() == 1) return;
        const Tensor range = state_.parameters->gradients(bucket.range);
        if (state_.divided)
            groups_.replicas->begin_reduce_scatter(range, bucket.cuts);
        else
            groups_.replicas->begin_all_reduce(range, cluster::Reduce::sum);
    }

    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    const model::TensorGroup& tensor_group_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_gradient_exchange(const Launch& launch, const TrainingState& state,
                                                         const model::TensorGroup& tensor_group, trace::Tracer* tracer,
                                                         const Regions& regions) {
    if (launch.description.parallel.lanes > 0)
        return std::make_unique<LaneExchange>(launch, state, tensor_group, tracer, regions);
    if (state.parameters->divides_gradients())
        return std::make_unique<DividingExchange>(launch, state, tensor_group, tracer, regions);
    return std::make_unique<ReducingExchange>(launch, state, tensor_group);
}

void sum_partial(const model::ParameterSet& parameters, const layout::Bucket& bucket,
                 const model::TensorGroup& tensor_group) {
    std::vector<Tensor> gradients;
    for (const std::size_t index : bucket.partial)
        gradients.push_back(parameters.gradient(parameters.descriptions()[index].name));
    tensor_group.sum(gradients);
}

void gather_parameters(const TrainingState& state, const cluster::ProcessGroups& groups) {
    if (!state.divided) return;
    for (const layout::Bucket& bucket : state.gradient_plan.buckets)
        for (const auto& shared : state.parameters->shared(bucket.range, bucket.cuts))
            groups.replicas->begin_all_gather(shared.tensor, shared.cuts);
    groups.replicas->finish_collectives();
}

}  // namespace lockstep::train
