// When checkpoints are written and committed. They are written beside the training by a thread of each rank; the ranks
// commit one together once all have written their share.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.hpp"
#include "train/launch.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class CheckpointSchedule {
  public:
    // Collective. All of them outlive this object.
    CheckpointSchedule(const Launch& launch, const TrainingState& state, trace::Tracer& tracer, trace::RegionId region);

    void start();                       // checkpoint.every_minutes count from here
    bool due(std::int64_t step) const;  // by checkpoint.every
    bool interval_over() const;         // by checkpoint.every_minutes; rank 0 decides
    bool writing() const;               // this rank's thread
    bool pending() const;               // begun and not committed

    // Collective. Waits for the file where `wait`. False: it could not be written, and training may go on.
    bool save(std::int64_t step, bool wait);
    // Collective, once no rank is writing any more.
    void commit();

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
