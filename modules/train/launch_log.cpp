#include "train/launch_log.hpp"

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/version.hpp"
#include "device/parallel.hpp"
#include "device/sync.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"

namespace lockstep::train {

void log_launch(const Launch& launch) {
    const auto& model = launch.description.model;
    const config::Grid& grid = launch.grid;
    const layout::Devices& devices = launch.devices;
    const int ranks = launch.session.size();
    log::info("lockstep {} ({}), {}: {} rank{} x {} thread{} on {}, computing in {}", version(), commit(), devices.name,
              ranks, plural(ranks), threads(), plural(threads()), launch.session.place().host,
              config::word_of(launch.description.precision.compute));
    if (devices.on_gpu() && launch.description.precision.compute == config::Precision::fp32)
        log::info(
            "in fp32 the GPU's tensor cores are idle; with precision.compute = \"bf16\" training is several times as "
            "fast");
    if (!devices.on_gpu() && launch.description.parallel.offload != config::Offload::none)
        log::info("parallel.offload has no effect on CPUs");
    if (!devices.why_no_gpu.empty()) log::info("not using a GPU: {}", devices.why_no_gpu);
    cluster::log_placement(devices.placement, launch.session.place().host, *launch.control);
    if (ranks > 1)
        log::info("grid: data {} x tensor {} x pipeline {} x context {}; communication: {}", grid.data, grid.tensor,
                  grid.pipeline, grid.context, devices.carrier);
    if (const std::int64_t lanes = launch.description.parallel.lanes; lanes > 0)
        log::info(
            "lanes: {}, {} per replica; results are bit-identical for any number of replicas that divides the lanes",
            lanes, lanes / grid.data);
    if (sync_mode() != SyncMode::async) log::info("sync mode: {}", config::word_of(sync_mode()));
    log::info("model: {}{}, {} parameters, {:.3g} FLOP per token", model.preset.empty() ? "" : model.preset + ", ",
              config::mixers_text(model), with_commas(model::parameter_count(model)),
              model::training_flop_per_token(model, launch.description.batch.length));
    if (model::freezes(model))
        log::info(
            "{} of {} parameters are trained; the others are frozen, and stored in {} where only matrix products and "
            "lookups use them",
            with_commas(model::trained_parameter_count(model)), with_commas(model::parameter_count(model)),
            config::word_of(launch.description.precision.compute));
}

}  // namespace lockstep::train
