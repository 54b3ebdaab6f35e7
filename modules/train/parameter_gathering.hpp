// ZeRO stage 3: the trained parameters that a part of the model computes with, gathered from the replicas that own them
// while the part before is computed, into memory that several parts share (layout/gradient_plan.hpp).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "model/parameter_supply.hpp"
#include "train/launch.hpp"
#include "train/regions.hpp"
#include "train/training_state.hpp"

namespace lockstep::train {

class ParameterGathering final : public model::ParameterSupply {
  public:
    // The arguments outlive it. A no-op if the replicas do not divide parameters.
    ParameterGathering(const Launch& launch, const TrainingState& state, trace::Tracer* tracer, const Regions& regions);

    void need(model::ModelPart part, std::optional<model::ModelPart> next) override;
    void set_timed(bool timed) { timed_ = timed; }
    void forget();  // what was gathered: parameters have changed

  private:
    const std::vector<std::size_t>& windows_of(model::ModelPart part) const;
    bool has(std::size_t window) const;
    void begin(std::size_t window);

    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    PhaseTimer timer_;
    trace::RegionId region_;
    bool timed_ = false;
    std::vector<layout::Bucket> windows_;                      // of what is trained, and of what is frozen
    std::map<std::int64_t, std::vector<std::size_t>> needed_;  // by place of the part: windows
    std::map<std::size_t, std::size_t> held_;                  // by buffer: the window that it has, or is to have
    std::vector<std::size_t> under_way_;                       // windows that are being gathered
};

}  // namespace lockstep::train
