#include "train/launch.hpp"

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "cluster/agree.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/sync.hpp"
#include "layout/rank_share.hpp"
#include "layout/run_layout.hpp"
#include "model/frozen.hpp"
#include "optim/weight_groups.hpp"
#include "train/initial_model.hpp"
#include "train/memory_check.hpp"
#include "watch/stop_request.hpp"

namespace lockstep::train {
namespace {

// CPUs compute in fp32, or in bf16 if all ranks' processors have instructions for it.
void choose_precision(Launch& launch) {
    if (launch.devices.on_gpu()) return;
    config::Precision& compute = launch.description.precision.compute;
    if (compute == config::Precision::fp16)
        throw usage_error(
            "precision.compute = \"fp16\": CPUs compute in fp32 or bf16; set it to one of these, or run on GPUs");
    if (compute != config::Precision::bf16 || launch.control->all_maximum(kernels::cpu_multiplies_bf16() ? 0 : 1) == 0)
        return;
    compute = config::Precision::fp32;
    if (launch.root())
        log::warning(
            "precision.compute = \"bf16\": at least one rank's processor lacks bf16 instructions (AVX512-BF16 or AMX), "
            "or the environment disables them (ONEDNN_MAX_CPU_ISA, LOCKSTEP_CPU_BF16); this launch computes in fp32");
}

// Each rank's role: its place in the grid, its part of the model, its share of a batch.
void lay_out(Launch& launch) {
    const config::RunDescription& description = launch.description;
    model::check_frozen(description.model);
    optim::check_groups(description.optimizer, description.model);
    const config::Grid grid = layout::choose_grid(description, launch.session.size());
    const DeviceKind device = launch.devices.backend->device().kind;
    launch.grid = grid;
    launch.groups = cluster::make_groups(*launch.devices.communicators, launch.session.rank(), grid,
                                         layout::messages_used(launch.description));
    const layout::BatchShare batch = layout::share_of_batch(description, grid, device);
    if (batch.fewest_micro_batches < grid.pipeline && launch.root())
        log::warning(
            "{} micro-batch{} per step cannot fill a pipeline of {} stages; lower batch.micro = {} or raise "
            "batch.global",
            batch.fewest_micro_batches, plural(batch.fewest_micro_batches, "es"), grid.pipeline, batch.micro);
    launch.plan = layout::plan_memory(description, grid, launch.groups.place, device);
    check_free_memory(launch);
    const int local_ranks = launch.session.place().local_ranks;
    if (grid.tensor > local_ranks && launch.root())
        log::warning(
            "parallel.tensor = {} exceeds the {} ranks of a node: the tensor group communicates over the network in "
            "every layer",
            grid.tensor, local_ranks);
}

void open_folders(Launch& launch) {
    cluster::on_root(*launch.control, [&] {
        launch.folders.run = std::make_unique<watch::RunFolder>(launch.folders.run_path);
        launch.folders.checkpoint_lock = std::make_unique<watch::RunLock>(launch.folders.checkpoint_path, ".lock");
    });
}

}  // namespace

void Folders::write_status(const std::string& state, std::int64_t step, ExitCode code,
                           const std::string& reason) const {
    if (run) watch::RunFolder::write_status(run_path, state, step, static_cast<int>(code), reason);
}

std::string Launch::computes_on() const {
    const bool offloads = devices.on_gpu() && description.parallel.offload != config::Offload::none;
    return offloads ? devices.name + ", updates on " + devices.processor : devices.name;
}

config::RunDescription Launch::resolved() const {
    config::RunDescription resolved = description;
    resolved.batch.micro = plan.micro;
    resolved.parallel.data = grid.data;
    return resolved;
}

Launch open_launch(cluster::Session& session, config::RunDescription description, const TrainOptions& options) {
    Launch launch{session, std::move(description), options, seconds_now(), session.make_world_group("control")};
    const config::RunDescription& run = launch.description;
    fault::set_position(session.rank(), 0);
    fault::at("launch");
    launch.folders.run_path = config::run_folder(run);
    launch.folders.checkpoint_path = config::checkpoint_folder(run);
    set_sync_mode(run.sync.mode);
    launch.devices = layout::open_devices(run.run.device, session, run.run.bind);
    choose_precision(launch);
    lay_out(launch);
    launch.data = open_run_data(run, *launch.control);
    check_initial_model(launch);
    check_resume_file(launch);
    open_folders(launch);
    launch.resume = choose_checkpoint(launch);
    if (launch.resume.complete) return launch;
    if (launch.folders.run) log::add_file(launch.folders.run_path + "/log.txt");
    watch::watch_signals();
    cluster::flight_recorder().set_step(launch.resume.state.step);
    launch.supervision = std::make_unique<Supervision>(launch);
    check_memory_beside_messages(launch);
    if (run.run.self_test != config::SelfTest::off)
        launch.folder_test =
            calibrate::test_checkpoint_folder(launch.folders.checkpoint_path, session, *launch.control);
    return launch;
}

}  // namespace lockstep::train
