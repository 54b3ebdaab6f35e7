// What is looked at between two steps: whether replicas are still equal, and links between nodes as fast as each other.
#pragma once

#include <cstdint>

#include "doctor/link_probe.hpp"
#include "train/launch.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class HealthChecks {
  public:
    // Collective, and so are the two checks, which need all steps to be finished. The arguments outlive this object.
    HealthChecks(const Launch& launch, const TrainingState& state, trace::Tracer& tracer,
                 const CommunicationRegions& regions);

    bool replicas_due(std::int64_t step) const;  // besides where checkpoints are
    void compare_replicas(std::int64_t step);    // fault error: they differ

    bool wants_link_probe() const { return links_.due(); }  // this rank; true on rank 0 alone
    void probe_links();

  private:
    const Launch& launch_;
    const TrainingState& state_;
    trace::Tracer& tracer_;
    CommunicationRegions regions_;
    doctor::LinkProbe links_;
};

}  // namespace lockstep::train
