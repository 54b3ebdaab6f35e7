#include "layout/lane_buffers.hpp"

#include <algorithm>

namespace lockstep::layout {
namespace {

std::size_t most_waiting(const LaneTree& tree, std::int64_t data) {
    std::size_t waiting = 0, most = 0;
    const std::vector<std::size_t> sums = tree.sums_behind(tree.leaves(data));
    for (std::size_t lane = 0; lane + 1 < sums.size(); ++lane) {
        waiting += 1 - sums[lane];
        most = std::max(most, waiting);
    }
    return most;
}

}  // namespace

LaneBuffers::LaneBuffers(Device device, const GradientPlan& plan, const LaneTree& tree, const config::Grid& grid,
                         std::int64_t replica, std::int64_t trained) {
    const std::int64_t data = replica / grid.context;
    std::int64_t nodes = 0;  // of all others
    for (std::int64_t other = 0; other < grid.replicas(); ++other)
        if (other != replica) nodes += static_cast<std::int64_t>(tree.largest(other / grid.context).size());
    std::int64_t most = 0;
    const auto at = static_cast<std::size_t>(replica);
    for (const Bucket& bucket : plan.buckets) most = std::max(most, bucket.cuts[at + 1] - bucket.cuts[at]);
    waiting_.resize(most_waiting(tree, data));
    memory_ = planned(device, "sums of lanes", [&](Arena& arena) {
        for (Tensor& sums : waiting_) sums = arena.allocate(Type::fp32, {trained});
        received_ = arena.allocate(Type::fp32, {nodes * most});
    });
}

}  // namespace lockstep::layout
