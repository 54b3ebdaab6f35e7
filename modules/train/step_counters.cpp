#include "train/step_counters.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"

namespace lockstep::train {

StepCounters::StepCounters(const Launch& launch) : launch_(launch) {
    if (!launch.description.trace.counters) return;
    begin_energy();
    begin_processors();
}

void StepCounters::begin_energy() {
    if (launch_.devices.placement.local_rank == 0) {
        std::vector<std::string> gpus;
        if (launch_.devices.on_gpu())
            for (const cluster::RankSeat& seat : launch_.devices.placement.map.seats)
                if (std::find(gpus.begin(), gpus.end(), seat.gpu) == gpus.end()) gpus.push_back(seat.gpu);
        meter_.emplace(gpus, fault::at("energy_root"));
        if (!meter_->works() && !launch_.root()) meter_.reset();
    }
    const double nodes = launch_.control->all_sum(meter_ && meter_->works() ? 1 : 0);
    energy_measured_ = nodes > 0;
    if (!launch_.root()) return;
    if (energy_measured_)
        log::write(log::Level::detail,
                   fmt::format("energy: {}, {} node{}", meter_->works() ? meter_->about() : "not on this node", nodes,
                               plural(nodes)));
    else
        log::write(log::Level::detail, "energy is not measured: " + meter_->about());
}

void StepCounters::begin_processors() {
    if (launch_.devices.on_gpu()) return;
    processors_.emplace();
    // The reason of the first rank that has one.
    const std::int64_t ranks = launch_.control->size();
    const std::int64_t first =
        ranks - launch_.control->all_maximum(processors_->works() ? 0 : ranks - launch_.control->rank());
    if (first < ranks) {
        const std::string reason = launch_.control->broadcast_text(processors_->reason(), static_cast<int>(first));
        if (launch_.root()) log::write(log::Level::detail, "processor counters are not read: " + reason);
        processors_.reset();
    } else if (launch_.root()) {
        log::write(log::Level::detail, "processor counters: instructions and cycles, by PAPI");
    }
}

// Counters that fail on one rank are given up on all, so that every sum is of all ranks.
void StepCounters::take(trace::StepRecord& step) {
    if (!energy_measured_ && !processors_) return;
    const ProcessorCounts counts = processors_ ? processors_->take() : ProcessorCounts{};
    const bool failed = processors_ && !processors_->works();
    std::vector<double> sums = {meter_ ? meter_->take() : 0, failed ? 1.0 : 0.0, counts.instructions, counts.cycles,
                                counts.seconds};
    launch_.control->all_reduce(sums, cluster::Reduce::sum);
    step.joules = sums[0];
    if (sums[1] > 0) {
        if (failed) log::warning("processors are no longer counted ({})", processors_->reason());
        processors_.reset();
        return;
    }
    step.instructions = sums[2];
    step.cycles = sums[3];
    step.processor_seconds = sums[4];
}

}  // namespace lockstep::train
