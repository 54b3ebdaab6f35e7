#include "train/step_loss.hpp"

namespace lockstep::train {

// Without lanes all ranks add to one sum.
StepLoss::StepLoss(kernels::Backend& backend, std::int64_t lanes, const config::Grid& grid,
                   const cluster::GridPlace& place, bool counts)
    : backend_(backend),
      counts_(counts),
      lanes_here_(lanes > 0 ? lanes / grid.data : 1),
      first_(lanes > 0 ? place.context * lanes + place.data * lanes_here_ : 0) {
    memory_ = planned(backend.device(), "step losses", [&](Arena& arena) {
        lane_ = arena.allocate(Type::fp64, {1});
        lanes_ = arena.allocate(Type::fp64, {lanes > 0 ? grid.context * lanes : 1});
        sums_ = arena.allocate(Type::fp64, {2});
    });
}

void StepLoss::clear() {
    for (const Tensor& sums : {lane_, lanes_, sums_}) backend_.fill(sums, 0);
}

void StepLoss::fill(float value) {
    backend_.fill(lanes_, value);
}

void StepLoss::complete(std::int64_t lane) {
    backend_.copy(lanes_.slice(first_ + lane, 1), lane_);
    backend_.fill(lane_, 0);
    if (lane + 1 < lanes_here_) return;
    backend_.sum_rows(sums_.slice(0, 1), lanes_.slice(first_, lanes_here_));
    if (!counts_) backend_.fill(lanes_, 0);
}

void StepLoss::finish() {
    backend_.sum_rows(total(), lanes_);
}

}  // namespace lockstep::train
