// When local checkpoints are written and committed, and what a launch finds of them when it resumes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/local.hpp"
#include "train/launch.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

checkpoint::LocalPlace local_place(const Launch& launch);

// Collective. What lies on the launch's nodes and counts, newest first; none without checkpoint.local.
std::vector<checkpoint::PartSet> find_local_checkpoints(const Launch& launch);

// On rank 0: whether a launch of this run wrote local checkpoints, or was to.
bool wrote_local_checkpoints(const Launch& launch);

// Collective, once the run's state is that of its beginning. Begins a course where the run has any or is to have: what
// lies on the nodes of later steps no longer counts. Returns the list. Usage error for a fresh start where no rank can
// write to checkpoint.local.
std::vector<checkpoint::Course> begin_local_course(const Launch& launch);

class LocalCheckpoints {
  public:
    // Collective. Removes what no longer counts. The arguments outlive this object.
    LocalCheckpoints(const Launch& launch, const TrainingState& state, trace::Tracer& tracer, trace::RegionId region);

    bool due(std::int64_t step) const;
    bool writing() const;  // by this rank's threads
    bool pending() const;  // begun and not committed

    void save(std::int64_t step);  // collective
    void commit();                 // collective, once no rank is writing
    // Collective, when a shared one of this step has been committed: where local ones fail, older ones make room.
    void make_room(std::int64_t shared_step);
    void remove_all();  // collective: the run has finished

  private:
    const Launch& launch_;
    const TrainingState& state_;
    trace::Tracer& tracer_;
    trace::RegionId region_;
    std::optional<checkpoint::LocalWriter> writer_;
    std::int64_t step_ = 0;  // of the last one begun
    bool told_ = false;      // the log's terminal has the line of one
};

}  // namespace lockstep::train
