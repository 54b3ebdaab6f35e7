// One training step: what is issued to the device, and what is read back from it later.
//
// On a GPU the host runs ahead: the losses, the norm and the decision about the update stay on the device and are read
// when the host has issued the next step (or more, in the sync mode `bounded`). The work of a micro-step is recorded
// and replayed. Phases cannot be told apart in that flow, so every so many steps one is run by itself, phase by phase.
#include <algorithm>
#include <cmath>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "device/gpu.hpp"
#include "device/sync.hpp"
#include "optim/schedule.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {
namespace {

constexpr std::int64_t exact_every = 100, first_exact = 10;  // steps whose phases are timed on a GPU

// Kernels must have run once, with their memory found and their matrix products chosen, before they are recorded.
constexpr std::int64_t runs_before_recording = 2;

class Range {
  public:
    explicit Range(const char* name) { push_range(name); }
    ~Range() { pop_range(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
};

}  // namespace

bool Trainer::wants_exact_times(std::int64_t step) const {
    if (!devices_.on_gpu() || sync_mode() == SyncMode::phase) return true;
    return step % exact_every == 0 || step == first_exact;
}

template <class Body>
void Trainer::phase(trace::RegionId region, const char* name, Body&& body) {
    const Range range(name);
    if (!exact_) {
        body();
        return;
    }
    const trace::Scope timed(*tracer_, region);
    body();
    if (devices_.on_gpu()) devices_.backend->synchronize();
}

void Trainer::load_batch(std::int64_t first_sample, std::int64_t micro_step) {
    const std::int64_t length = description_.batch.length, micro = micro_;
    const std::int64_t first = first_sample + (session_.rank() * accumulation_ + micro_step) * micro;
    {
        const trace::Scope timed(*tracer_, regions_.data_loading);
        for (std::int64_t i = 0; i < micro; ++i)
            training_data_->fetch(first + i, batch_->host_ids.data() + i * length,
                                  batch_->host_targets.data() + i * length);
    }
    phase(regions_.data_movement, "data_movement", [&] { batch_->upload(*devices_.backend); });
}

void Trainer::forward_and_loss_work() {
    const auto gradient_scale =
        static_cast<float>(1.0 / static_cast<double>(description_.batch.global * description_.batch.length));
    stage_->forward(0, batch_->ids);
    stage_->loss(0, batch_->targets, gradient_scale, batch_->losses);
    devices_.backend->sum(losses_.slice(0, 1), batch_->losses, kernels::Accumulate::yes);
}

void Trainer::segment_work(const Segment& segment) {
    stage_->backward_blocks(0, segment.first_block, segment.last_block);
    if (segment.last) stage_->backward_embedding(0, batch_->ids);
}

void Trainer::run_phases(bool reduce) {
    kernels::Backend& backend = *devices_.backend;
    const auto gradient_scale =
        static_cast<float>(1.0 / static_cast<double>(description_.batch.global * description_.batch.length));
    phase(regions_.forward, "forward", [&] { stage_->forward(0, batch_->ids); });
    phase(regions_.loss, "loss", [&] {
        stage_->loss(0, batch_->targets, gradient_scale, batch_->losses);
        backend.sum(losses_.slice(0, 1), batch_->losses, kernels::Accumulate::yes);
    });
    phase(regions_.backward, "backward", [&] {
        for (const Segment& segment : segments_) {
            segment_work(segment);
            if (reduce) devices_.communicator->begin_all_reduce(segment.bucket, cluster::Reduce::sum);
        }
    });
}

void Trainer::run_segments(bool reduce) {
    const Range range("forward, loss, backward");
    for (Segment& segment : segments_) {
        const auto work = [&] {
            if (segment.first) forward_and_loss_work();
            segment_work(segment);
        };
        // The inner rate is part of the work: while it warms up, every step has another.
        const bool lasting = inner_rate_factor_ == 1 && sync_mode() != SyncMode::launch;
        if (!segment.recording && lasting && segment_runs_ >= runs_before_recording)
            segment.recording = devices_.backend->record(work);
        if (segment.recording)
            segment.recording->run();
        else
            work();
        if (reduce) devices_.communicator->begin_all_reduce(segment.bucket, cluster::Reduce::sum);
    }
}

// `reduce`: the gradients are whole after this micro-step, and each bucket sets out as soon as it is.
void Trainer::run_micro_step(bool reduce) {
    if (exact_)
        run_phases(reduce);
    else
        run_segments(reduce);
    ++segment_runs_;
}

void Trainer::issue(std::int64_t step, std::int64_t epoch, double start) {
    kernels::Backend& backend = *devices_.backend;
    const double factor = optim::inner_rate_factor(description_.model, description_.schedule.warmup, step);
    if (factor != inner_rate_factor_) {  // it is part of what was recorded
        for (Segment& segment : segments_) segment.recording.reset();
        segment_runs_ = 0;
        inner_rate_factor_ = factor;
    }
    stage_->set_inner_rate_factor(factor);
    stage_->set_timed(exact_);
    phase(regions_.optimizer, "optimizer", [&] {
        backend.fill(parameters_->all_gradients(), 0);
        backend.fill(losses_, 0);
    });
    const auto in_flight = static_cast<std::int64_t>(in_flight_.size());
    const std::int64_t first_sample = state_.data_cursor + in_flight * description_.batch.global;
    for (std::int64_t micro_step = 0; micro_step < accumulation_; ++micro_step) {
        load_batch(first_sample, micro_step);
        run_micro_step(micro_step + 1 == accumulation_);
    }
    if (fault::at("loss") == "nan") backend.fill(losses_, std::nanf(""));
    {
        const trace::Scope timed(*tracer_, exact_ ? regions_.communication : -1);
        phase(regions_.communication_data, "communication", [&] {
            backend.copy(losses_.slice(1, 1), losses_.slice(0, 1));
            devices_.communicator->begin_all_reduce(losses_.slice(1, 1), cluster::Reduce::sum);
            devices_.communicator->finish_collectives();
        });
    }
    phase(regions_.optimizer, "optimizer",
          [&] { optimizer_->update(optim::learning_rate(description_.schedule, steps_, step), losses_.slice(1, 1)); });
    Issued issued;
    issued.step = step;
    issued.epoch = epoch;
    issued.start = start;
    issued.losses = backend.read_later(losses_);
    issued.decision = backend.read_later(optimizer_->decision());
    in_flight_.push_back(std::move(issued));
}

Trainer::Finished Trainer::finish(Issued issued) {
    using kernels::Decision;
    const std::vector<double> losses = issued.losses->get();
    const std::vector<double>& decision = issued.decision->get();
    const std::int64_t sequences = description_.batch.global;
    const auto tokens = static_cast<double>(sequences * description_.batch.length);
    const double now = seconds_now();
    Finished finished;
    finished.step = issued.step;
    finished.epoch = issued.epoch;
    finished.loss = losses[1] / tokens;
    finished.rank_loss = losses[0] * session_.size() / tokens;
    finished.gradient_norm = decision[Decision::gradient_norm];
    finished.skipped = decision[Decision::proceed] == 0;
    // While steps overlap, each takes from the end of the one before to its own.
    finished.seconds = now - std::max(issued.start, last_finish_);
    last_finish_ = now;

    state_.step = issued.step;
    state_.samples += sequences;
    state_.data_cursor += sequences;
    state_.tokens += sequences * description_.batch.length;
    state_.optimizer_steps = static_cast<std::int64_t>(decision[Decision::updates]);
    state_.skipped_steps += finished.skipped ? 1 : 0;
    state_.skipped_in_a_row = finished.skipped ? state_.skipped_in_a_row + 1 : 0;
    if (state_.skipped_in_a_row >= description_.optimizer.skip_limit) skipped_to_the_limit_ = state_.skipped_in_a_row;
    fault::at("step_end");
    return finished;
}

}  // namespace lockstep::train
