#include "optim/update_decision.hpp"

#include <vector>

namespace lockstep::optim {

using kernels::Decision;

UpdateDecision::UpdateDecision(kernels::Backend& backend)
    : memory_(backend.device(), 2 * Arena::device_alignment, "update decision"),
      values_(memory_.allocate(Type::fp64, {Decision::places})),
      totals_(memory_.allocate(Type::fp64, {2})) {
    set_progress(backend, {});
}

void UpdateDecision::set_progress(kernels::Backend& backend, const Progress& progress) {
    std::vector<double> values(Decision::places);
    values[Decision::updates] = static_cast<double>(progress.updates);
    values[Decision::loss_scale] = progress.loss_scale;
    values[Decision::good_steps] = static_cast<double>(progress.good_steps);
    values[Decision::bad_steps] = static_cast<double>(progress.bad_steps);
    backend.upload(values_, values.data());
}

}  // namespace lockstep::optim
