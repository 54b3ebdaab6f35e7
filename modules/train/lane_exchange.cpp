#include "train/lane_exchange.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::train {

LaneExchange::LaneExchange(const Launch& launch, const TrainingState& state, const model::TensorGroup& tensor_group,
                           trace::Tracer* tracer, const Regions& regions)
    : state_(state),
      devices_(launch.devices),
      groups_(launch.groups),
      tensor_group_(tensor_group),
      grid_(launch.grid),
      replica_(launch.groups.place.replica(launch.grid)),
      tree_(launch.description.parallel.lanes, launch.grid.data),
      buffers_(launch.devices.backend->device(), state.gradient_plan, tree_, launch.grid, replica_,
               state.parameters->layout().trained_total(), launch.description.parallel.bucket_bytes),
      timer_{tracer, launch.devices},
      regions_(regions),
      sums_behind_lane_(tree_.sums_behind(tree_.leaves(launch.groups.place.data))),
      waiting_behind_lane_(tree_.waiting_behind(launch.groups.place.data)) {
    std::vector<layout::LaneNode> all;
    for (std::int64_t data = 0; data < grid_.data; ++data) {
        const std::vector<layout::LaneNode> nodes = tree_.largest(data);
        nodes_of_replica_.push_back(nodes.size());
        all.insert(all.end(), nodes.begin(), nodes.end());
    }
    sums_behind_node_ = tree_.sums_behind(all);
}

void LaneExchange::complete(std::size_t number, std::int64_t lane) {
    kernels::Backend& backend = *devices_.backend;
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    const Tensor gradients = state_.parameters->all_gradients();
    const auto of_bucket = [&](const Tensor& all) { return all.slice(bucket.range.first, bucket.range.count); };
    sum_partial(*state_.parameters, bucket, tensor_group_);
    const auto at = static_cast<std::size_t>(lane);
    std::size_t waiting = at == 0 ? 0 : waiting_behind_lane_[at - 1];
    const Tensor sum = of_bucket(gradients);
    for (std::size_t sums = 0; sums < sums_behind_lane_[at]; ++sums)
        backend.add(sum, of_bucket(buffers_.waiting()[--waiting]));
    if (lane + 1 < tree_.lanes_of_replica()) {
        backend.copy(of_bucket(buffers_.waiting()[waiting]), sum);
        state_.parameters->clear_gradients(backend, bucket.range);
        return;
    }
    if (number != state_.gradient_plan.tied) exchange(number);
}

// Flat, ascending: the sums that wait, and last the one in the gradients' own place.
std::vector<Tensor> LaneExchange::own_nodes() const {
    std::vector<Tensor> nodes = buffers_.waiting();
    nodes.resize(nodes_of_replica_[static_cast<std::size_t>(groups_.place.data)] - 1);
    nodes.push_back(state_.parameters->all_gradients());
    return nodes;
}

// Of the flat gradients.
model::Piece LaneExchange::slice_of(const layout::Bucket& bucket, std::int64_t replica, std::int64_t first) const {
    const auto at = static_cast<std::size_t>(replica);
    const std::int64_t count = bucket.cuts[at + 1] - bucket.cuts[at] - first;
    return {bucket.range.first + bucket.cuts[at] + first, std::clamp<std::int64_t>(count, 0, buffers_.slice())};
}

// All replicas begin as many exchanges as the largest piece has slices.
void LaneExchange::exchange(std::size_t number) {
    const std::vector<std::int64_t>& cuts = state_.gradient_plan.buckets[number].cuts;
    std::int64_t most = 0;
    for (std::size_t at = 0; at + 1 < cuts.size(); ++at) most = std::max(most, cuts[at + 1] - cuts[at]);
    for (std::int64_t first = 0; first < most; first += buffers_.slice()) {
        settle();
        pending_ = begin(number, first);
        pending_->last = first + buffers_.slice() >= most;
    }
}

LaneExchange::Pending LaneExchange::begin(std::size_t number, std::int64_t first) {
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    const auto part = [](const Tensor& all, const model::Piece& piece) { return all.slice(piece.first, piece.count); };
    const std::vector<Tensor> own = own_nodes();
    Pending pending;
    pending.bucket = number;
    pending.slice = slice_of(bucket, replica_, first);
    pending.nodes.resize(static_cast<std::size_t>(grid_.context));
    std::vector<cluster::Message> messages;
    std::int64_t received = 0;
    for (std::int64_t data = 0; data < grid_.data; ++data)
        for (std::int64_t context = 0; context < grid_.context; ++context) {
            const std::int64_t replica = cluster::GridPlace{0, context, data, 0}.replica(grid_);
            std::vector<Tensor>& nodes = pending.nodes[static_cast<std::size_t>(context)];
            if (replica == replica_) {
                for (const Tensor& node : own) nodes.push_back(part(node, pending.slice));
                continue;
            }
            const model::Piece theirs = slice_of(bucket, replica, first);
            for (const Tensor& node : own)
                if (theirs.count > 0) messages.push_back({part(node, theirs), static_cast<int>(replica), true});
            for (std::size_t node = 0; node < nodes_of_replica_[static_cast<std::size_t>(data)]; ++node) {
                nodes.push_back(buffers_.received().slice(received, pending.slice.count));
                received += pending.slice.count;
                if (pending.slice.count > 0) messages.push_back({nodes.back(), static_cast<int>(replica), false});
            }
        }
    if (grid_.replicas() > 1) pending.transfer = groups_.replicas->begin_exchange(messages, 0);
    return pending;
}

// The nodes of all replicas, ascending; their sum takes the place of one of them.
Tensor LaneExchange::add_up_tree(const std::vector<Tensor>& nodes) const {
    std::vector<Tensor> stack;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        stack.push_back(nodes[node]);
        for (std::size_t sums = 0; sums < sums_behind_node_[node]; ++sums) {
            const Tensor right = stack.back();
            stack.pop_back();
            devices_.backend->add(stack.back(), right);
        }
    }
    return stack.front();
}

void LaneExchange::settle() {
    if (!pending_) return;
    const Pending pending = std::move(*pending_);
    pending_.reset();
    if (pending.transfer)
        timer_.phase(exact_, regions_.communication.data, "communication", [&] { pending.transfer->wait(); });
    const layout::Bucket& bucket = state_.gradient_plan.buckets[pending.bucket];
    const Tensor gradients = state_.parameters->all_gradients();
    if (pending.slice.count > 0) {
        const Tensor slice = gradients.slice(pending.slice.first, pending.slice.count);
        const Tensor sum = add_up_tree(pending.nodes.front());
        for (std::size_t context = 1; context < pending.nodes.size(); ++context)
            devices_.backend->add(sum, add_up_tree(pending.nodes[context]));
        if (sum.data() != slice.data()) devices_.backend->copy(slice, sum);
        // Both ends of the pipeline have gradients of a tied table; the sum keeps their copies equal.
        if (pending.bucket == state_.gradient_plan.tied)
            timer_.phase(exact_, regions_.communication.data, "communication",
                         [&] { groups_.ends->all_reduce(slice, cluster::Reduce::sum); });
    }
    if (pending.last && !state_.divided && grid_.replicas() > 1)
        groups_.replicas->begin_all_gather(gradients.slice(bucket.range.first, bucket.range.count), bucket.cuts);
}

void LaneExchange::finish(Tensor losses) {
    exact_ = false;  // the caller times this as communication
    if (const auto tied = state_.gradient_plan.tied) exchange(*tied);
    settle();
    devices_.communicator->begin_all_reduce(losses, cluster::Reduce::sum);
    devices_.communicator->finish_collectives();
    groups_.replicas->finish_collectives();
}

}  // namespace lockstep::train
