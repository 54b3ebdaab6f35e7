#include "train/step_energy.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"

namespace lockstep::train {

StepEnergy::StepEnergy(const Launch& launch) : launch_(launch) {
    if (launch.devices.placement.local_rank == 0) {
        std::vector<std::string> gpus;
        if (launch.devices.on_gpu())
            for (const cluster::RankSeat& seat : launch.devices.placement.map.seats)
                if (std::find(gpus.begin(), gpus.end(), seat.gpu) == gpus.end()) gpus.push_back(seat.gpu);
        meter_.emplace(gpus, fault::at("energy_root"));
        if (!meter_->works() && !launch.root()) meter_.reset();
    }
    const double nodes = launch.control->all_sum(meter_ && meter_->works() ? 1 : 0);
    measured_ = nodes > 0;
    if (!launch.root()) return;
    if (measured_)
        log::write(log::Level::detail,
                   fmt::format("energy: {}, of {} node{}", meter_->works() ? meter_->about() : "not of this node",
                               nodes, plural(nodes)));
    else
        log::write(log::Level::detail, "energy is not measured: " + meter_->about());
}

double StepEnergy::take() {
    if (!measured_) return 0;
    return launch_.control->all_sum(meter_ ? meter_->take() : 0);
}

}  // namespace lockstep::train
