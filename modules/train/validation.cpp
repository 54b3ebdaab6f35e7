#include "train/validation.hpp"

#include <algorithm>
#include <cmath>

#include "base/fault.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "layout/batch_plan.hpp"
#include "layout/rank_share.hpp"

namespace lockstep::train {

namespace {

std::int64_t windows_of(const Launch& launch) {
    const double batches =
        layout::validation_batches(launch.description.validation, static_cast<double>(launch.data.steps));
    const double windows = batches * static_cast<double>(launch.description.batch.global);
    return batches > 0 ? std::max<std::int64_t>(1, static_cast<std::int64_t>(windows)) : 0;
}

}  // namespace

Validation::Validation(Launch& launch, LayerGroups& layers, Pipeline& pipeline, trace::Tracer& tracer,
                       trace::RegionId region)
    : launch_(launch),
      layers_(layers),
      pipeline_(pipeline),
      tracer_(tracer),
      region_(region),
      memory_(launch.devices.backend->device(), Arena::device_alignment, "validation loss"),
      loss_(memory_.allocate(Type::fp64, {1})),
      windows_(windows_of(launch)) {
    const bool automatic = launch.description.validation.batches == config::ValidationSection::automatic;
    if (automatic && launch.data.validation && windows_ < launch.data.validation->windows())
        log::info(
            "validation uses {} of {} windows, to cost a tenth of training's FLOP; validation.batches = 0 uses all",
            with_commas(windows_), with_commas(launch.data.validation->windows()));
}

bool Validation::due(std::int64_t step) const {
    if (!launch_.data.validation) return false;
    const std::int64_t every = launch_.description.validation.every;
    return (every > 0 && step % every == 0) || step == launch_.data.steps;
}

Evaluation Validation::run(std::int64_t step) {
    const trace::Scope timed(tracer_, region_);
    fault::at("validation");
    const config::RunDescription& description = launch_.description;
    layers_.set_timed(false);
    EvaluationShare share;
    share.micro = launch_.plan.micro;
    share.length = description.batch.length;
    share.replicas = {launch_.groups.place.data, launch_.grid.data};
    share.equal_passes = layout::divides_parameters(description, launch_.grid);
    share.counts_losses = pipeline_.has_head() && layers_.tensor.first();
    share.counts_tokens = share.counts_losses && layers_.context.first();
    const auto evaluate_batch = [&](const LoadWindows& load) {
        pipeline_.forward_only(loss_, [&](std::int64_t, const HostBatch& batch) { load(batch); });
    };
    ProgressLine progress(fmt::format("validation at step {}", step));
    const Evaluation evaluation = evaluate(*launch_.devices.backend, *launch_.data.validation, windows_, share, loss_,
                                           evaluate_batch, *launch_.control, progress);
    const std::string bits =
        evaluation.bits_per_byte > 0 ? fmt::format(", {:.4f} bits per byte", evaluation.bits_per_byte) : "";
    log::info("validation at step {}: loss {:.5f}, perplexity {:.3f}{}, {} tokens", step, evaluation.loss,
              std::exp(evaluation.loss), bits, with_commas(evaluation.tokens));
    return evaluation;
}

}  // namespace lockstep::train
