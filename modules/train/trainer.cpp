#include "train/trainer.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/parallel.hpp"
#include "doctor/report.hpp"
#include "layout/rank_share.hpp"
#include "model/frozen.hpp"
#include "train/flop_rates.hpp"
#include "train/launch_log.hpp"
#include "train/memory_check.hpp"
#include "train/product_choices.hpp"
#include "watch/watch_folder.hpp"

namespace lockstep::train {
namespace {

std::unique_ptr<trace::Tracer> open_trace(const Launch& launch) {
    const cluster::RankPlace& place = launch.session.place();
    const cluster::RankSeat& seat = launch.devices.placement.seat();
    const cluster::GridPlace& grid = launch.groups.place;
    trace::TracerOptions options;
    options.detail = launch.description.trace.detail;
    options.event_every = static_cast<std::int64_t>(
        std::min<std::uint64_t>(launch.description.trace.events_every, std::numeric_limits<std::int64_t>::max()));
    options.folder = launch.folders.run_path;
    options.run_name = launch.description.run.name;
    options.description = config::to_toml(launch.resolved());
    options.trained_parameters = model::trained_parameter_count(launch.description.model);
    options.steps_left = launch.data.steps - launch.resume.state.step;
    options.rank.host = place.host;
    options.rank.cores = seat.cores.text();
    options.rank.threads = threads();
    if (!seat.numa_nodes.empty()) options.rank.numa_node = seat.numa_nodes.front();
    if (launch.devices.on_gpu()) options.rank.gpu = launch.devices.name + " " + seat.gpu;
    options.rank.network = fmt::format("{}", fmt::join(seat.network, ", "));
    options.rank.data = grid.data;
    options.rank.tensor = grid.tensor;
    options.rank.pipeline = grid.pipeline;
    options.rank.context = grid.context;
    return std::make_unique<trace::Tracer>(std::move(options), launch.session.make_world_group("trace"));
}

PipelineOptions pipeline_options(const Launch& launch, const TrainingState& state, const LayerGroups& layers,
                                 ParameterGathering& gathering, trace::Tracer* tracer) {
    const config::RunDescription& description = launch.description;
    PipelineOptions options;
    options.chunks = launch.plan.chunks;
    options.stages = launch.grid.pipeline;
    options.micro = launch.plan.micro;
    options.length = description.batch.length;
    options.most_micro_batches = launch.plan.micro_batches;
    options.begun_ahead = layout::begun_ahead(description, layers.context.last());
    options.recompute = description.parallel.recompute;
    options.neighbours = &layers.neighbours;
    options.separates_documents = description.data.separates_documents();
    options.restarts_positions = description.restarts_positions();
    if (description.model.adapters.dropout > 0) options.dropout.emplace(description.run.seed, "adapter dropout");
    options.z_loss = description.optimizer.z_loss;
    options.loss_scale =
        description.precision.compute == config::Precision::fp16 ? state.optimizer->loss_scale() : Tensor();
    if (state.parameters->divides_values()) options.supply = &gathering;
    options.divides_gradients = state.parameters->divides_gradients();
    options.tracer = tracer;
    return options;
}

// What `lockstep doctor` prints, as lines of the log.
void examine_nodes(Launch& launch) {
    const doctor::Examination found = doctor::examine({launch.session, *launch.control, launch.devices});
    if (!launch.root()) return;
    for (const doctor::LinkSummary& kind : found.links.kinds)
        log::info("links {}: {}, {:.1f} us, {} each way, lowest {}", kind.kind, kind.links, kind.latency * 1e6,
                  human_rate(kind.rate, "B"), human_rate(kind.lowest_rate, "B"));
    for (const doctor::Finding& finding : found.findings) log::warning("{}", doctor::log_line(finding));
    log::info("doctor: {}", doctor::verdict(found));
}

// Returns this rank's rate of matrix products, FLOP/s; 0 if run.self_test is off.
double self_test(Launch& launch) {
    if (launch.description.run.self_test == config::SelfTest::off) return 0;
    if (launch.description.run.self_test == config::SelfTest::full) examine_nodes(launch);
    return calibrate::run_self_test({launch.session, *launch.control, launch.devices, launch.grid, launch.groups,
                                     layout::compute_type(launch.description.precision.compute),
                                     launch.folders.run_path, launch.folder_test});
}

// An exception of `body` goes to status.json, unless that says already why the run ended: an error here may be its
// consequence. At once, since unwinding may hang; the rank that reports the error writes it again.
void recording_failure(const Launch& launch, const std::function<void()>& body) {
    try {
        body();
    } catch (const std::exception& error) {
        if (!launch.supervision->may_record()) throw;
        const auto* ours = dynamic_cast<const Error*>(&error);
        launch.folders.write_status(ours ? watch::state_after(*ours) : "failed", launch.supervision->step(),
                                    ours ? ours->code() : ExitCode::fault, error.what());
        throw;
    }
}

}  // namespace

ExitCode train(cluster::Session& session, config::RunDescription description, const TrainOptions& options) {
    Launch launch = open_launch(session, std::move(description), options);
    const std::int64_t first = launch.resume.state.step;
    if (launch.resume.complete) {
        log::info("run {} is finished: its checkpoint {} is at step {} of {}", launch.description.run.name,
                  launch.resume.path, first, launch.data.steps);
        launch.folders.write_status("finished", first, ExitCode::done, "");
        return ExitCode::done;
    }
    launch.supervision->record_lost_connections(session);
    TrainingState state = make_training_state(launch);
    log_launch(launch);
    fill_training_state(launch, state);
    // Before what was later is set aside, and long before training: a launch that ends in between must not leave that
    // for the next one to find.
    launch.local_courses = begin_local_course(launch);
    set_aside_later(launch);
    // Only now: a launch that failed to resume leaves the run's status unchanged.
    if (launch.folders.run) {
        launch.folders.run->write_description(config::to_toml(launch.description));
        launch.folders.run->remove_stop_file();
        if (launch.supervision->may_record()) launch.folders.write_status("running", first, ExitCode::done, "");
    }
    launch.supervision->record_failures(session);
    std::optional<Trainer> trainer;
    ExitCode code = ExitCode::done;
    recording_failure(launch, [&] {
        trainer.emplace(launch, state);
        code = trainer->run();
    });
    return code;
}

Trainer::Trainer(Launch& launch, TrainingState& state)
    : launch_(launch),
      state_(state),
      tracer_(open_trace(launch)),
      regions_(register_regions(*tracer_, launch.description.model.layers)),
      layers_(launch.groups, launch.description.parallel.sequence, tracer_.get(), regions_.communication),
      gathering_(launch, state, tracer_.get(), regions_),
      exchange_(make_gradient_exchange(launch, state, layers_.tensor, tracer_.get(), regions_)),
      control_(launch, *tracer_, regions_.communication),
      source_epochs_(*launch.data.training) {
    const trace::Scope timed(*tracer_, regions_.initialization);
    // Before the activations, while GPU memory is free.
    const double product_flops = self_test(launch);
    choose_products(launch, *state.parameters);
    pipeline_.emplace(launch.devices, launch.groups, *state.parameters, launch.description.model, state.gradient_plan,
                      pipeline_options(launch, state, layers_, gathering_, tracer_.get()), regions_);
    check_memory_plan(launch, state, *exchange_, *pipeline_);
    log_memory_plan(launch);
    const FlopRates rates = find_flop_rates(launch, product_flops);
    steps_.emplace(StepParts{launch, state, layers_, *pipeline_, gathering_, *exchange_, *tracer_, regions_,
                             [this] { return checkpoints_->before_update(); }},
                   rates);
    validation_.emplace(launch, layers_, *pipeline_, *tracer_, regions_.validation);
    checkpoints_.emplace(launch, state, *tracer_, regions_.checkpoint);
    local_checkpoints_.emplace(launch, state, *tracer_, regions_.checkpoint);
    health_.emplace(launch, state, *tracer_, regions_.communication);
    log_.emplace(launch, *tracer_, regions_, rates.peak);
}

ExitCode Trainer::run() {
    checkpoints_->start();
    std::int64_t step = state_.counters.step, stop = control_.stop_after(step);
    // What lies on the nodes alone may be gone when the next launch begins.
    if (stop != go_on && launch_.resume.local && !checkpoints_->save(step, true)) fail_unsaved(step);
    while (step < launch_.data.steps && stop == go_on) {
        begin_step(++step);
        Agreement agreed;
        agreed.stop = control_.stop_after(step);

        // An exactly timed step has the device and its trace row to itself.
        const bool exact = steps_->wants_exact_times(step);
        if (exact) agreed.add(finish_all_steps());
        log_->close_row();
        follow_epoch();
        {
            const trace::Scope timed(*tracer_, regions_.step);
            steps_->issue(step, epoch_, exact);
            agreed.add(finish_steps(exact ? 0 : steps_->in_flight_limit()));
        }
        // What reads parameters or this step's numbers waits for them.
        if (due_after(step, agreed).any()) agreed.add(finish_all_steps());

        const Due due = due_after(step, agreed);
        const bool gives_up = steps_->skipped_to_limit() > 0;
        if (gives_up) state_.counters.skipped_in_a_row = 0;  // a resumed run starts counting again
        if (due.validate) log_->add_validation(validation_->run(step));
        if (agreed.local_pending && !agreed.local_writing) local_checkpoints_->commit();
        if (agreed.checkpoint_pending && !agreed.checkpoint_writing && checkpoints_->commit())
            local_checkpoints_->make_room(checkpoints_->saved_step());
        if (due.compare_replicas) health_->compare_replicas(step);
        if (due.probe_links) health_->probe_links();
        if (due.save_locally) local_checkpoints_->save(step);
        const bool saved = !due.save || checkpoints_->save(step, due.last);
        log_->close_row();
        if (agreed.flush) tracer_->flush();
        if (due.last && !saved) fail_unsaved(step);
        if (gives_up) fail_not_finite(step);
        stop = agreed.stop;
    }
    return end(step, stop);
}

void Trainer::begin_step(std::int64_t step) {
    launch_.supervision->begin_step(step);
    cluster::flight_recorder().set_step(step);
    fault::set_position(launch_.session.rank(), step);
}

void Trainer::follow_epoch() {
    source_epochs_.follow(steps_->next_sample());
    const std::int64_t epoch = launch_.data.training->epoch_of(steps_->next_sample());
    if (epoch == epoch_) return;
    if (epoch_ >= 0) tracer_->end(regions_.epoch);
    tracer_->begin(regions_.epoch);
    epoch_ = epoch;
}

// Finishes steps in flight, oldest first, until `left_in_flight` remain. All ranks have the same ones.
Agreement Trainer::finish_steps(std::size_t left_in_flight) {
    Agreement agreed;
    while (steps_->in_flight() > left_in_flight) {
        log_->close_row();
        trace::StepNumbers numbers = steps_->finish();
        if (steps_->finished_exact()) log_->compare_ranks(numbers.step);
        Agreement own;
        own.flush = launch_.root() && tracer_->wants_flush();
        own.save = checkpoints_->interval_over();
        own.probe_links = health_->wants_link_probe();
        own.checkpoint_writing = checkpoints_->writing();
        own.checkpoint_pending = checkpoints_->pending();
        own.local_writing = local_checkpoints_->writing();
        own.local_pending = local_checkpoints_->pending();
        own.slowest_seconds = numbers.seconds;
        const Agreement of_all = control_.agree(own);
        numbers.seconds = of_all.slowest_seconds;
        log_->add(numbers);
        agreed.add(of_all);
    }
    return agreed;
}

Agreement Trainer::finish_all_steps() {
    if (steps_->in_flight() == 0) return {};
    const trace::Scope timed(*tracer_, regions_.step);  // the host waits for their work
    return finish_steps(0);
}

Trainer::Due Trainer::due_after(std::int64_t step, const Agreement& agreed) const {
    Due due;
    due.last = step == launch_.data.steps || agreed.stop != go_on || steps_->skipped_to_limit() > 0;
    due.validate = validation_->due(step);
    due.save = due.last || agreed.save || checkpoints_->due(step);
    due.save_locally = !due.last && local_checkpoints_->due(step);
    due.compare_replicas = due.save || due.save_locally || health_->replicas_due(step);
    due.probe_links = !due.last && agreed.probe_links;
    return due;
}

void Trainer::fail_unsaved(std::int64_t step) {
    tracer_->close();
    log_->finish();
    throw fault_error("step {} could not be saved in {}; resume from the newest checkpoint there", step,
                      launch_.folders.checkpoint_path);
}

void Trainer::fail_not_finite(std::int64_t step) {
    tracer_->close();
    log_->finish();
    throw fault_error(
        "loss or gradient was not finite in {} consecutive steps, up to step {}; the last good parameters are in "
        "{}/{}; lower schedule.peak_lr, clip harder, or check the data",
        steps_->skipped_to_limit(), step, launch_.folders.checkpoint_path, checkpoint::file_name(step));
}

ExitCode Trainer::end(std::int64_t step, std::int64_t stop) {
    if (epoch_ >= 0) tracer_->end(regions_.epoch);
    tracer_->close();
    log_->finish();
    const bool finished = step >= launch_.data.steps;
    const std::string reason = finished ? "" : control_.reason(stop);
    const ExitCode code = finished ? ExitCode::done : ExitCode::stopped;
    if (finished) local_checkpoints_->remove_all();
    if (launch_.supervision->may_record_end())
        launch_.folders.write_status(finished ? "finished" : "stopped", step, code, reason);
    if (launch_.folders.run) {
        launch_.folders.run->remove_stop_file();
        watch::remove_watch_folders(launch_.folders.run_path);
    }
    if (finished)
        log::info("finished: step {} of {} in {}", step, launch_.data.steps,
                  human_seconds(seconds_now() - launch_.started));
    else
        log::info("stopped at step {} of {} ({}); continue with --resume auto", step, launch_.data.steps, reason);
    return code;
}

}  // namespace lockstep::train
