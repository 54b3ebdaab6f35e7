#include "layout/lane_buffers.hpp"

#include <algorithm>

namespace lockstep::layout {
namespace {

constexpr std::int64_t shortest_slice = 4096;  // elements; shorter messages take as long

}  // namespace

LaneBuffers::LaneBuffers(Device device, const GradientPlan& plan, const LaneTree& tree, const config::Grid& grid,
                         std::int64_t replica, std::int64_t trained, std::int64_t bucket_bytes) {
    const std::int64_t data = replica / grid.context;
    std::int64_t nodes = 0;  // of all replicas
    for (std::int64_t other = 0; other < grid.data; ++other)
        nodes += grid.context * static_cast<std::int64_t>(tree.largest(other).size());
    // What all replicas send of one slice is no more than two buckets.
    constexpr std::int64_t unit = model::ParameterLayout::alignment;
    const std::int64_t most_received = 2 * bucket_bytes / std::int64_t{sizeof(float)};
    slice_ = std::max(shortest_slice, most_received / nodes / unit * unit);
    const std::int64_t others = nodes - static_cast<std::int64_t>(tree.largest(data).size());
    std::int64_t most = 0;
    const auto at = static_cast<std::size_t>(replica);
    for (const Bucket& bucket : plan.buckets) most = std::max(most, bucket.cuts[at + 1] - bucket.cuts[at]);
    waiting_.resize(tree.most_waiting(data));
    memory_ = planned(device, "lane sums", [&](Arena& arena) {
        for (Tensor& sums : waiting_) sums = arena.allocate(Type::fp32, {trained});
        received_ = arena.allocate(Type::fp32, {others * std::min(most, slice_)});
    });
}

}  // namespace lockstep::layout
