#include "train/step_log.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "device/memory.hpp"
#include "device/parallel.hpp"
#include "device/sync.hpp"
#include "trace/scalars.hpp"
#include "train/supervision.hpp"

namespace lockstep::train {
namespace {

constexpr double status_every_seconds = 10;

// Steps between comparisons of the ranks: all are timed by phase, or one in a hundred.
constexpr std::int64_t timed_steps = 20, few_timed_steps = 4;

}  // namespace

StepLog::StepLog(const Launch& launch, trace::Tracer& tracer, const Regions& regions, double peak_flops)
    : launch_(launch),
      tracer_(tracer),
      regions_(regions),
      progress_({launch.resume.state.step, launch.data.steps, launch.session.size(), peak_flops,
                 launch.description.log.every}),
      other_work_(threads()),
      counters_(launch) {
    if (launch.folders.run) {
        const std::int64_t first = launch.resume.state.step + 1;
        launch.folders.run->open_metrics(first - 1);
        if (launch.description.log.tensorboard) {
            tensorboard_.emplace(launch.folders.run_path + "/tensorboard", first);
            tensorboard_->add_text(first, trace::description_tag,
                                   tensorboard::as_code(config::to_toml(launch.resolved())));
        }
    }
    // Ranks that share a core alternate.
    const bool share = launch.control->all_maximum(launch.devices.placement.seat().shares_cores ? 1 : 0) != 0;
    if (launch.session.size() > 1 && regions.communication.all >= 0 && !share)
        slow_ranks_.emplace(*launch.control, static_cast<int>(launch.groups.place.pipeline),
                            fault::asks("slow_ranks", "elsewhere") ? "elsewhere" : launch.session.place().host,
                            launch.devices.on_gpu(),
                            launch.devices.on_gpu() && sync_mode() != SyncMode::phase ? few_timed_steps : timed_steps);
}

void StepLog::compare_ranks(std::int64_t step) {
    if (!slow_ranks_) return;
    const double worked = tracer_.seconds_of(regions_.step) - tracer_.seconds_of(regions_.communication.all);
    const trace::Scope timed(tracer_, regions_.communication.all);
    const trace::Scope within(tracer_, regions_.communication.control);
    slow_ranks_->add(step, worked);
}

void StepLog::add(trace::StepNumbers numbers) {
    {
        const trace::Scope timed(tracer_, regions_.communication.all);
        const trace::Scope within(tracer_, regions_.communication.control);
        counters_.take(numbers);
    }
    open_row_ = numbers;
    if (!launch_.folders.run) return;
    const double now = seconds_now();
    if (now - last_status_ > status_every_seconds) {
        last_status_ = now;
        if (launch_.supervision->may_record())
            launch_.folders.write_status("running", numbers.step, ExitCode::done, "");
    }
    launch_.folders.run->write_step(numbers);
    if (tensorboard_) tensorboard_->add_scalars(numbers.step, trace::step_scalars(numbers));
    progress_.step(numbers);
    if (const auto sentence = other_work_.look()) log::warning("{}", *sentence);
}

void StepLog::add_validation(const Evaluation& evaluation) {
    LOCKSTEP_ASSERT(open_row_.has_value());
    open_row_->validation = {evaluation.loss, evaluation.bits_per_byte, evaluation.tokens};
    if (launch_.folders.run)
        launch_.folders.run->write_validation(open_row_->step, evaluation.loss, evaluation.bits_per_byte);
    if (tensorboard_) tensorboard_->add_scalars(open_row_->step, trace::validation_scalars(open_row_->validation));
}

void StepLog::finish() {
    if (launch_.folders.run) progress_.finish();
}

void StepLog::close_row() {
    if (!open_row_) return;
    const ProcessMemory memory = process_memory();
    const std::uint64_t peak = std::max(memory.peak, memory.resident);
    tracer_.memory(launch_.plan.planned(), memory.resident, peak);
    if (tensorboard_) tensorboard_->add_scalars(open_row_->step, trace::memory_scalars(peak));
    tracer_.finish_step(*open_row_);
    open_row_.reset();
}

}  // namespace lockstep::train
