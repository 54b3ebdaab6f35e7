#include "train/lane_exchange.hpp"

namespace lockstep::train {

LaneExchange::LaneExchange(const Launch& launch, const TrainingState& state, const model::TensorGroup& tensor_group)
    : state_(state),
      devices_(launch.devices),
      groups_(launch.groups),
      tensor_group_(tensor_group),
      grid_(launch.grid),
      replica_(launch.groups.place.replica(launch.grid)),
      tree_(launch.description.parallel.lanes, launch.grid.data),
      buffers_(launch.devices.backend->device(), state.gradient_plan, tree_, launch.grid, replica_,
               state.parameters->layout().trained_total()) {
    const std::vector<layout::LaneNode> own = tree_.leaves(launch.groups.place.data);
    sums_behind_lane_ = tree_.sums_behind(own);
    std::size_t waiting = 0;
    for (const std::size_t sums : sums_behind_lane_) {
        waiting_before_.push_back(waiting);
        waiting += 1 - sums;
    }
    std::vector<layout::LaneNode> all;
    for (std::int64_t data = 0; data < grid_.data; ++data)
        for (const layout::LaneNode& node : tree_.largest(data)) all.push_back(node);
    sums_behind_node_ = tree_.sums_behind(all);
}

void LaneExchange::complete(std::size_t number, std::int64_t lane) {
    kernels::Backend& backend = *devices_.backend;
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    const Tensor gradients = state_.parameters->all_gradients();
    const auto of_bucket = [&](const Tensor& all) { return all.slice(bucket.range.first, bucket.range.count); };
    for (const std::size_t index : bucket.partial) tensor_group_.sum(state_.parameters->part(gradients, index));
    const auto at = static_cast<std::size_t>(lane);
    std::size_t waiting = waiting_before_[at];
    const Tensor sum = of_bucket(gradients);
    for (std::size_t sums = 0; sums < sums_behind_lane_[at]; ++sums)
        backend.add(sum, of_bucket(buffers_.waiting()[--waiting]));
    if (lane + 1 < tree_.lanes_of_replica()) {
        backend.copy(of_bucket(buffers_.waiting()[waiting]), sum);
        backend.fill(sum, 0);  // layers add to it, but where they overwrite it in a lane's first pass
        return;
    }
    if (number != state_.gradient_plan.tied) begin(number);
}

// Flat, ascending: the sums that wait, and last the one in the gradients' own place.
std::vector<Tensor> LaneExchange::own_nodes() const {
    std::vector<Tensor> nodes = buffers_.waiting();
    nodes.resize(tree_.largest(groups_.place.data).size() - 1);
    nodes.push_back(state_.parameters->all_gradients());
    return nodes;
}

void LaneExchange::begin(std::size_t number) {
    settle();
    const layout::Bucket& bucket = state_.gradient_plan.buckets[number];
    const auto piece_of = [&](std::int64_t replica, const Tensor& all) {
        const auto at = static_cast<std::size_t>(replica);
        return all.slice(bucket.range.first + bucket.cuts[at], bucket.cuts[at + 1] - bucket.cuts[at]);
    };
    const std::vector<Tensor> own = own_nodes();
    const std::int64_t count =
        bucket.cuts[static_cast<std::size_t>(replica_) + 1] - bucket.cuts[static_cast<std::size_t>(replica_)];
    Pending pending;
    pending.bucket = number;
    pending.pieces.resize(static_cast<std::size_t>(grid_.context));
    std::vector<cluster::Message> messages;
    std::int64_t received = 0;
    for (std::int64_t data = 0; data < grid_.data; ++data)
        for (std::int64_t context = 0; context < grid_.context; ++context) {
            const std::int64_t replica = cluster::GridPlace{0, context, data, 0}.replica(grid_);
            std::vector<Tensor>& pieces = pending.pieces[static_cast<std::size_t>(context)];
            if (replica == replica_) {
                for (const Tensor& node : own) pieces.push_back(piece_of(replica_, node));
                continue;
            }
            for (const Tensor& node : own)
                if (const Tensor piece = piece_of(replica, node); piece.count() > 0)
                    messages.push_back({piece, static_cast<int>(replica), true});
            for (std::size_t node = 0; node < tree_.largest(data).size(); ++node) {
                pieces.push_back(buffers_.received().slice(received, count));
                received += count;
                if (count > 0) messages.push_back({pieces.back(), static_cast<int>(replica), false});
            }
        }
    if (grid_.replicas() > 1) pending.transfer = groups_.replicas->begin_exchange(messages, 0);
    pending_ = std::move(pending);
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
    if (pending.transfer) pending.transfer->wait();
    const layout::Bucket& bucket = state_.gradient_plan.buckets[pending.bucket];
    const auto at = static_cast<std::size_t>(replica_);
    const Tensor range = state_.parameters->all_gradients().slice(bucket.range.first, bucket.range.count);
    const Tensor piece = range.slice(bucket.cuts[at], bucket.cuts[at + 1] - bucket.cuts[at]);
    if (piece.count() > 0) {
        Tensor sum = add_up_tree(pending.pieces.front());
        for (std::size_t context = 1; context < pending.pieces.size(); ++context)
            devices_.backend->add(sum, add_up_tree(pending.pieces[context]));
        if (sum.data() != piece.data()) devices_.backend->copy(piece, sum);
        // Both ends of the pipeline have gradients of a tied table; the sum keeps their copies equal.
        if (pending.bucket == state_.gradient_plan.tied) groups_.ends->all_reduce(piece, cluster::Reduce::sum);
    }
    if (!state_.divided && grid_.replicas() > 1) groups_.replicas->begin_all_gather(range, bucket.cuts);
}

void LaneExchange::finish(Tensor losses) {
    if (const auto tied = state_.gradient_plan.tied) begin(*tied);
    settle();
    devices_.communicator->begin_all_reduce(losses, cluster::Reduce::sum);
    devices_.communicator->finish_collectives();
    groups_.replicas->finish_collectives();
}

}  // namespace lockstep::train
