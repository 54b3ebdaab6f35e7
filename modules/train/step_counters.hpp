// What machines count of steps: the energy of the nodes that have counters for it (device/energy.hpp), and the
// instructions and cycles of all ranks' threads (device/processor_counters.hpp).
#pragma once

#include <optional>

#include "device/energy.hpp"
#include "device/processor_counters.hpp"
#include "trace/records.hpp"
#include "train/launch.hpp"

namespace lockstep::train {

class StepCounters {
  public:
    // Collective. The log says which counters are read, or why there are none. On GPU launches processors are not
    // counted: their threads wait for the device.
    explicit StepCounters(const Launch& launch);
    // Collective: all ranks' counts since the last call, or since construction. What is not counted stays 0.
    void take(trace::StepRecord& step);

  private:
    void begin_energy();
    void begin_processors();

    const Launch& launch_;
    std::optional<EnergyMeter> meter_;             // on the first rank of a node
    std::optional<ProcessorCounters> processors_;  // on every rank, or on none
    bool energy_measured_ = false;                 // by one node at least
};

}  // namespace lockstep::train
