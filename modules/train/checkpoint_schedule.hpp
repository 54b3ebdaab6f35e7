// When checkpoints are written and committed. Each rank writes in the background; all commit together once every rank
// has written its share.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.hpp"
#include "train/launch.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class CheckpointSchedule {
  public:
    // Collective. The arguments outlive this object.
    CheckpointSchedule(const Launch& launch, const TrainingState& state, trace::Tracer& tracer, trace::RegionId region);

    void start();                       // starts the clock of checkpoint.every_minutes
    bool due(std::int64_t step) const;  // by checkpoint.every
    bool interval_over() const;         // by checkpoint.every_minutes; rank 0 decides
    bool writing() const;               // by this rank's threads
    bool pending() const;               // begun and not committed

    // Collective. `wait` blocks until committed. False: writing failed; training may continue.
    bool save(std::int64_t step, bool wait);
    // Collective, once no rank is writing. Whether there is a whole checkpoint of saved_step() now.
    bool commit();
    std::int64_t saved_step() const { return saved_step_; }  // of the last one begun
    // Local: called before parameters and optimizer state change, from which a checkpoint may still be written. Returns
    // the seconds for which it held up the step.
    double before_update();

  private:
    void log_committed() const;

    const Launch& launch_;
    const TrainingState& state_;
    trace::Tracer& tracer_;
    trace::RegionId region_;
    checkpoint::Writer writer_;
    std::int64_t saved_step_;  // the last one begun; -1: none
    double last_save_ = 0;
};

}  // namespace lockstep::train
