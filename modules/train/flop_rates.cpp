#include "train/flop_rates.hpp"

#include "base/log.hpp"
#include "calibrate/peak.hpp"
#include "layout/rank_share.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"

namespace lockstep::train {

FlopRates find_flop_rates(Launch& launch, double product_flops) {
    const config::RunDescription& description = launch.description;
    const auto& model = description.model;
    FlopRates rates;
    rates.model_per_token = model::training_flop_per_token(model, description.batch.length);
    rates.hardware_per_token = rates.model_per_token;
    rates.hardware_per_token +=
        model::recomputed_flop_per_token(model, description.batch.length, description.parallel.recompute);
    const calibrate::Peak peak =
        calibrate::find_peak(launch.devices, layout::compute_type(description.precision.compute),
                             description.run.peak_tflops, product_flops);
    rates.peak = peak.flops;
    log::detail(
        "model TFLOP/s: {}, per rank; hardware TFLOP/s: including recompute; MFU: model TFLOP/s relative to {:.3g} "
        "TFLOP/s, {}",
        !model::freezes(model)
            ? "three times the forward pass's matrix products and mixing"
            : "the matrix products and mixing of the forward pass, and of the backward pass as far as it trains "
              "parameters",
        peak.flops * 1e-12, peak.origin);
    return rates;
}

}  // namespace lockstep::train
