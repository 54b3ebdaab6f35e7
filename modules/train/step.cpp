// One training step: what is issued to the device, and what is read back from it later.
//
// On a GPU the host runs ahead: the losses, the norm and the decision about the update stay on the device and are read
// when the host has issued the next step (or more, in the sync mode `bounded`). Phases cannot be told apart in that
// flow, so every so many steps one is run by itself, phase by phase.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/gpu.hpp"
#include "device/sync.hpp"
#include "layout/batch_plan.hpp"
#include "optim/schedule.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {
namespace {

constexpr std::int64_t exact_every = 100, first_exact = 10;  // steps whose phases are timed on a GPU

}  // namespace

bool Trainer::wants_exact_times(std::int64_t step) const {
    if (!devices_.on_gpu() || sync_mode() == SyncMode::phase) return true;
    return step % exact_every == 0 || step == first_exact;
}

template <class Body>
void Trainer::phase(trace::RegionId region, const char* name, Body&& body) {
    const NamedRange range(name);
    const trace::OptionalScope timed(exact_ ? tracer_.get() : nullptr, region);
    body();
    if (exact_ && devices_.on_gpu()) devices_.backend->synchronize();
}

// A bucket's gradients are whole on this rank: they set out to be added up over the replicas.
void Trainer::reduce(std::size_t number) {
    const layout::Bucket& bucket = gradient_plan_.buckets[number];
    const Tensor gradients = parameters_->all_gradients();
    for (const std::size_t index : bucket.partial) tensor_group_.sum(parameters_->part(gradients, index));
    if (groups_.replicas->size() == 1) return;
    const Tensor range = gradients.slice(bucket.range.first, bucket.range.count);
    if (divides_optimizer())
        groups_.replicas->begin_reduce_scatter(range, bucket.cuts);
    else
        groups_.replicas->begin_all_reduce(range, cluster::Reduce::sum);
}

// A tied table has gradients on both ends of the pipeline; both add them up, and update their copies alike.
void Trainer::finish_reductions() {
    if (gradient_plan_.tied) {
        const layout::Bucket& bucket = gradient_plan_.buckets[*gradient_plan_.tied];
        groups_.ends->all_reduce(parameters_->all_gradients().slice(bucket.range.first, bucket.range.count),
                                 cluster::Reduce::sum);
        reduce(*gradient_plan_.tied);
    }
    const bool speaks = pipeline_->has_head() && tensor_group_.first();
    if (speaks) devices_.backend->copy(losses_.slice(1, 1), losses_.slice(0, 1));
    devices_.communicator->begin_all_reduce(losses_.slice(1, 1), cluster::Reduce::sum);
    devices_.communicator->finish_collectives();
    groups_.replicas->finish_collectives();
}

// What each replica has updated becomes all replicas'.
void Trainer::share_parameters() {
    if (!divides_optimizer()) return;
    for (const layout::Bucket& bucket : gradient_plan_.buckets)
        for (const auto& shared : parameters_->shared(bucket.range, bucket.cuts))
            groups_.replicas->begin_all_gather(shared.tensor, shared.cuts);
    groups_.replicas->finish_collectives();
}

std::int64_t Trainer::next_batch() const {
    return layout::batch_after(description_.batch, state_.samples + samples_in_flight_);
}

void Trainer::issue(std::int64_t step, std::int64_t epoch, double start) {
    kernels::Backend& backend = *devices_.backend;
    pipeline_->set_inner_rate_factor(optim::inner_rate_factor(description_.model, description_.schedule.warmup, step));
    tensor_group_.set_timed(exact_);
    context_chain_.set_timed(exact_);
    const bool trains_here = !parameters_->all_gradients().empty();  // a stage may be frozen
    phase(regions_.optimizer, "optimizer", [&] {
        if (trains_here) backend.fill(parameters_->all_gradients(), 0);
        backend.fill(losses_, 0);
        if (fault::at("step_work") == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(40));
    });
    if (fault::at("gradient") == "inf" && trains_here)
        backend.fill(parameters_->all_gradients(), std::numeric_limits<float>::infinity());
    const std::int64_t batch = next_batch(), length = description_.batch.length;
    const std::int64_t micro_batches = batch / grid_.data / plan_.micro;
    const std::int64_t first =
        state_.data_cursor + samples_in_flight_ + groups_.place.data * micro_batches * plan_.micro;
    const auto load = [&](std::int64_t micro_batch, std::int32_t* ids, std::int32_t* targets) {
        for (std::int64_t i = 0; i < plan_.micro; ++i)
            training_data_->fetch(first + micro_batch * plan_.micro + i, ids + i * length, targets + i * length);
    };
    pipeline_->run(micro_batches, exact_, 1.0 / static_cast<double>(batch * length), losses_.slice(0, 1), load,
                   [&](std::size_t bucket) { reduce(bucket); });
    if (fault::at("loss") == "nan") backend.fill(losses_, std::nanf(""));
    {
        const trace::OptionalScope timed(exact_ ? tracer_.get() : nullptr, regions_.communication);
        phase(regions_.communication_data, "communication", [&] { finish_reductions(); });
    }
    Issued issued;
    issued.step = step;
    issued.epoch = epoch;
    issued.batch = batch;
    issued.start = start;
    issued.loss_scale = backend.read_later(optimizer_->loss_scale());
    phase(regions_.optimizer, "optimizer",
          [&] { optimizer_->update(optim::learning_rate(description_.schedule, steps_, step), losses_.slice(1, 1)); });
    if (divides_optimizer()) {
        const trace::OptionalScope timed(exact_ ? tracer_.get() : nullptr, regions_.communication);
        phase(regions_.communication_data, "communication", [&] { share_parameters(); });
    }
    issued.communications = cluster::flight_recorder().newest();
    issued.losses = backend.read_later(losses_);
    issued.decision = backend.read_later(optimizer_->decision());
    in_flight_.push_back(std::move(issued));
    samples_in_flight_ += batch;
}

Trainer::Finished Trainer::finish(Issued issued) {
    using kernels::Decision;
    const std::vector<double> losses = issued.losses->get();
    const std::vector<double>& decision = issued.decision->get();
    cluster::flight_recorder().device_reached(issued.communications);
    watchdog_->step_done();
    const std::int64_t sequences = issued.batch;
    const auto tokens = static_cast<double>(sequences * description_.batch.length);
    const double now = seconds_now();
    Finished finished;
    finished.step = issued.step;
    finished.epoch = issued.epoch;
    finished.batch = sequences;
    finished.loss = losses[1] / tokens;
    // Stages without the head see no loss of their own.
    finished.rank_loss = pipeline_->has_head() ? losses[0] * grid_.replicas() / tokens : finished.loss;
    finished.gradient_norm = decision[Decision::gradient_norm];
    finished.loss_scale = issued.loss_scale->get()[0];
    finished.zero_gradients = std::llround(decision[Decision::zeros]) - padding_;
    finished.skipped = decision[Decision::proceed] == 0;
    // While steps overlap, each takes from the end of the one before to its own.
    finished.seconds = now - std::max(issued.start, last_finish_);
    last_finish_ = now;

    samples_in_flight_ -= sequences;
    state_.step = issued.step;
    state_.samples += sequences;
    state_.data_cursor += sequences;
    state_.tokens += sequences * description_.batch.length;
    state_.optimizer_steps = static_cast<std::int64_t>(decision[Decision::updates]);
    state_.loss_scale = decision[Decision::loss_scale];
    state_.good_steps = static_cast<std::int64_t>(decision[Decision::good_steps]);
    state_.bad_steps = static_cast<std::int64_t>(decision[Decision::bad_steps]);
    state_.skipped_steps += finished.skipped ? 1 : 0;
    state_.skipped_in_a_row = finished.skipped ? state_.skipped_in_a_row + 1 : 0;
    not_finite_ += std::isfinite(finished.loss) ? 0 : 1;
    if (state_.skipped_in_a_row >= description_.optimizer.skip_limit) skipped_to_the_limit_ = state_.skipped_in_a_row;
    fault::at("step_end");
    return finished;
}

}  // namespace lockstep::train
