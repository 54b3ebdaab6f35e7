#include "train/step.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/sync.hpp"
#include "layout/batch_plan.hpp"
#include "optim/schedule.hpp"

namespace lockstep::train {
namespace {

constexpr std::int64_t exact_every = 100, first_exact = 10;  // steps whose phases are timed on a GPU

}  // namespace

StepRunner::StepRunner(const StepParts& parts, const FlopRates& rates)
    : parts_(parts),
      rates_(rates),
      timer_{&parts.tracer, parts.launch.devices},
      // Tensor ranks have the same loss: only the first one's counts.
      loss_(*parts.launch.devices.backend, parts.launch.description.parallel.lanes, parts.launch.grid,
            parts.launch.groups.place, parts.pipeline.has_head() && parts.layers.tensor.first()) {}

bool StepRunner::wants_exact_times(std::int64_t step) const {
    if (!parts_.launch.devices.on_gpu() || sync_mode() == SyncMode::phase) return true;
    return step % exact_every == 0 || step == first_exact;
}

std::size_t StepRunner::in_flight_limit() const {
    if (!parts_.launch.devices.on_gpu()) return 0;
    if (sync_mode() == SyncMode::async) return 1;
    return sync_mode() == SyncMode::bounded ? bounded_steps : 0;
}

std::int64_t StepRunner::samples_in_flight() const {
    std::int64_t samples = 0;
    for (const Issued& issued : in_flight_) samples += issued.numbers.batch;
    return samples;
}

void StepRunner::issue(std::int64_t step, std::int64_t epoch, bool exact) {
    const config::RunDescription& description = parts_.launch.description;
    kernels::Backend& backend = *parts_.launch.devices.backend;
    Issued issued;
    issued.exact = exact;
    issued.start = seconds_now();
    trace::StepNumbers& numbers = issued.numbers;
    numbers.step = step;
    numbers.epoch = epoch;
    numbers.batch = layout::batch_after(description.batch, parts_.state.counters.samples + samples_in_flight());
    numbers.tokens = numbers.batch * description.batch.length;
    issued.targets = count_targets(numbers.batch);
    numbers.learning_rate = optim::learning_rate(description.schedule, parts_.launch.data.steps, step);
    numbers.model_flop = rates_.model_per_token * static_cast<double>(numbers.tokens);
    numbers.hardware_flop = rates_.hardware_per_token * static_cast<double>(numbers.tokens);

    parts_.pipeline.set_inner_rate_factor(
        optim::inner_rate_factor(description.model, description.schedule.warmup, step));
    parts_.layers.set_timed(exact);
    parts_.exchange.begin_step(exact);
    parts_.gathering.set_timed(exact);
    clear(exact);
    const bool made_infinite = fault::asks("gradient", "inf");
    run_passes(numbers.batch, issued.targets, exact);
    parts_.gathering.set_timed(false);
    exchange_gradients(exact);
    if (made_infinite) fill_gradients(std::numeric_limits<float>::infinity());
    issued.loss_scale = backend.read_later(parts_.state.optimizer->loss_scale());
    issued.start += parts_.before_update();  // a checkpoint's time, not the step's
    update(numbers.learning_rate, exact);
    issued.communications = cluster::flight_recorder().newest();
    issued.losses = backend.read_later(loss_.rank_and_total());
    issued.decision = backend.read_later(parts_.state.optimizer->decision());
    in_flight_.push_back(std::move(issued));
}

void StepRunner::clear(bool exact) {
    kernels::Backend& backend = *parts_.launch.devices.backend;
    timer_.phase(exact, parts_.regions.optimizer, "optimizer", [&] {
        parts_.state.parameters->clear_gradients(backend);
        loss_.clear();
        if (fault::asks("step_work", "slow")) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    });
}

// Of a step's samples: all tokens, or, with documents apart, those that another one of their document follows.
std::int64_t StepRunner::count_targets(std::int64_t batch) const {
    const Launch& launch = parts_.launch;
    if (!launch.description.data.separates_documents()) return batch * launch.description.batch.length;
    std::int64_t targets = 0;
    for (std::int64_t sample = next_sample(); sample < next_sample() + batch; ++sample)
        targets += launch.data.training->counted_tokens(sample);
    return std::max<std::int64_t>(targets, 1);
}

void StepRunner::run_passes(std::int64_t batch, std::int64_t targets, bool exact) {
    const Launch& launch = parts_.launch;
    const std::int64_t micro = launch.plan.micro, length = launch.description.batch.length;
    const std::int64_t micro_batches = batch / launch.grid.data / micro;
    const std::int64_t first = next_sample() + launch.groups.place.data * micro_batches * micro;
    const auto load = [&](std::int64_t micro_batch, const HostBatch& to) {
        for (std::int64_t i = 0; i < micro; ++i)
            fetch_sample(*launch.data.training, first + micro_batch * micro + i, length, i, to);
    };
    parts_.pipeline.run(
        {micro_batches, loss_.lanes_here(), exact, 1.0 / static_cast<double>(targets)}, loss_.lane(), load,
        {[&](std::int64_t lane) { loss_.complete(lane); }, [&](std::size_t bucket) { parts_.exchange.prepare(bucket); },
         [&](std::size_t bucket, std::int64_t lane) { parts_.exchange.complete(bucket, lane); }});
    if (fault::asks("loss", "nan")) loss_.fill(std::nanf(""));
}

void StepRunner::exchange_gradients(bool exact) {
    const auto timed = timer_.scope(exact, parts_.regions.communication.all);
    timer_.phase(exact, parts_.regions.communication.data, "communication", [&] {
        parts_.exchange.finish(loss_.exchanged());
        loss_.finish();
    });
}

// What this rank updates with, for tests of faults.
void StepRunner::fill_gradients(float value) {
    const model::ParameterSet& parameters = *parts_.state.parameters;
    for (const model::Piece& piece : parameters.owned())
        if (piece.count > 0) parts_.launch.devices.backend->fill(parameters.owned_gradients(piece), value);
}

void StepRunner::update(double learning_rate, bool exact) {
    timer_.phase(exact, parts_.regions.optimizer, "optimizer",
                 [&] { parts_.state.optimizer->update(learning_rate, loss_.total()); });
    parts_.gathering.forget();
    if (!parts_.state.divided) return;
    const auto timed = timer_.scope(exact, parts_.regions.communication.all);
    timer_.phase(exact, parts_.regions.communication.data, "communication",
                 [&] { gather_parameters(parts_.state, parts_.launch.groups); });
}

trace::StepNumbers StepRunner::finish() {
    Issued issued = std::move(in_flight_.front());
    in_flight_.pop_front();
    finished_exact_ = issued.exact;
    trace::StepNumbers numbers = issued.numbers;
    const std::vector<double> losses = issued.losses->get();
    const std::vector<double>& decision = issued.decision->get();
    cluster::flight_recorder().device_reached(issued.communications);
    parts_.launch.supervision->finish_step();

    const double now = seconds_now();
    // If steps overlap, each counts from the end of the previous one.
    numbers.seconds = now - std::max(issued.start, last_finish_);
    last_finish_ = now;
    const auto targets = static_cast<double>(issued.targets);
    numbers.loss = losses[1] / targets;
    // Only stages with the head have a loss.
    const auto replicas = static_cast<double>(parts_.launch.grid.replicas());
    numbers.rank_loss = parts_.pipeline.has_head() ? losses[0] * replicas / targets : numbers.loss;
    numbers.loss_scale = issued.loss_scale->get()[0];
    count(numbers, decision);
    fault::at("step_end");
    return numbers;
}

void StepRunner::count(trace::StepNumbers& numbers, const std::vector<double>& decision) {
    using kernels::Decision;
    numbers.gradient_norm = decision[Decision::gradient_norm];
    numbers.zero_gradients = std::llround(decision[Decision::zeros]) - parts_.state.padding;
    numbers.skipped = decision[Decision::proceed] == 0 ? 1 : 0;

    checkpoint::State& counters = parts_.state.counters;
    counters.step = numbers.step;
    counters.samples += numbers.batch;
    counters.data_cursor += numbers.batch;
    counters.tokens += numbers.tokens;
    counters.optimizer_steps = static_cast<std::int64_t>(decision[Decision::updates]);
    counters.loss_scale = decision[Decision::loss_scale];
    counters.good_steps = static_cast<std::int64_t>(decision[Decision::good_steps]);
    counters.bad_steps = static_cast<std::int64_t>(decision[Decision::bad_steps]);
    counters.skipped_steps += numbers.skipped;
    counters.skipped_in_a_row = numbers.skipped != 0 ? counters.skipped_in_a_row + 1 : 0;
    if (counters.skipped_in_a_row >= parts_.launch.description.optimizer.skip_limit)
        skipped_to_limit_ = counters.skipped_in_a_row;
    not_finite_ += std::isfinite(numbers.loss) ? 0 : 1;

    numbers.run_samples = counters.samples;
    numbers.run_tokens = counters.tokens;
    numbers.run_skipped = counters.skipped_steps;
    numbers.launch_not_finite = not_finite_;
}

}  // namespace lockstep::train
