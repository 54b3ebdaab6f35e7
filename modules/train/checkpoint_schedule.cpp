#include "train/checkpoint_schedule.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "train/checkpoint_contents.hpp"

namespace lockstep::train {

using WriterProgress = checkpoint::Writer::Progress;

CheckpointSchedule::CheckpointSchedule(const Launch& launch, const TrainingState& state, trace::Tracer& tracer,
                                       trace::RegionId region)
    : launch_(launch),
      state_(state),
      tracer_(tracer),
      region_(region),
      writer_(launch.folders.checkpoint_path, launch.description.checkpoint.keep,
              launch.session.make_world_group("checkpoint"), launch.description.checkpoint.verify),
      saved_step_(launch.resume.path.empty() || launch.resume.local ? -1 : launch.resume.state.step) {}

void CheckpointSchedule::start() {
    last_save_ = seconds_now();
}

bool CheckpointSchedule::due(std::int64_t step) const {
    const std::int64_t every = launch_.description.checkpoint.every;
    return every > 0 && step % every == 0;
}

bool CheckpointSchedule::interval_over() const {
    const double minutes = launch_.description.checkpoint.every_minutes;
    return launch_.root() && minutes > 0 && seconds_now() - last_save_ > minutes * 60;
}

bool CheckpointSchedule::writing() const {
    return writer_.progress() == WriterProgress::writing;
}

bool CheckpointSchedule::pending() const {
    return writer_.progress() != WriterProgress::idle;
}

bool CheckpointSchedule::save(std::int64_t step, bool wait) {
    if (step != saved_step_ && pending()) commit();
    const trace::Scope timed(tracer_, region_, step == saved_step_ ? trace::Call::continues : trace::Call::begins);
    if (step == saved_step_) return writer_.finish();
    saved_step_ = step;
    last_save_ = seconds_now();
    const checkpoint::Contents contents = checkpoint_contents(launch_, state_, step);
    const std::vector<checkpoint::Entry> entries = saved_entries(launch_, state_);
    // Where the CPU updates for a GPU, its next update is not to wait for the file.
    const checkpoint::Values values =
        state_.parameters->offloaded() ? checkpoint::Values::copied : checkpoint::Values::left_in_place;
    if (!wait) return writer_.begin(contents, entries, values);
    const bool saved = writer_.write_now(contents, entries);
    if (saved) log_committed();
    return saved;
}

bool CheckpointSchedule::commit() {
    const trace::Scope timed(tracer_, region_, trace::Call::continues);
    const bool committed = writer_.commit();
    if (committed) log_committed();
    return committed;
}

double CheckpointSchedule::before_update() {
    if (!writer_.needs_values()) return 0;
    const trace::Scope timed(tracer_, region_, trace::Call::continues);
    return writer_.release();
}

void CheckpointSchedule::log_committed() const {
    const checkpoint::Writer::Cost& cost = writer_.cost();
    const auto bytes = static_cast<double>(cost.bytes);
    log::info("checkpoint {}/{}: {} in {}, {}; training paused {}", launch_.folders.checkpoint_path,
              checkpoint::file_name(saved_step_), human_bytes(bytes), human_seconds(cost.seconds),
              human_rate(bytes / std::max(cost.seconds, 1e-9), "B"), human_seconds(cost.blocked_seconds));
}

}  // namespace lockstep::train
