#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cluster/agree.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/parallel.hpp"
#include "optim/schedule.hpp"
#include "watch/stop_request.hpp"
#include "watch/watch_folder.hpp"

namespace lockstep::train {
namespace {

// Every so many steps the replicas' parameters are compared.
constexpr std::int64_t replica_check_every = 100;

constexpr std::int64_t compared_at_a_time = std::int64_t{1} << 24;  // elements, when they come from a GPU

// How often status.json says how far the run is.
constexpr double status_every_seconds = 10;

enum StopCode : std::int64_t { go_on = 0, stop_at_step = 1, stop_for_time = 2, stop_file = 3, stop_for_signal = 100 };

}  // namespace

Trainer::~Trainer() = default;

ExitCode Trainer::run() {
    if (already_finished_) {
        log::info("the run {} is finished: its checkpoint {} is of step {} of {}", description_.run.name, resume_path_,
                  state_.step, steps_);
        if (folder_) watch::RunFolder::write_status(run_path_, "finished", state_.step, 0, "");
        return ExitCode::done;
    }
    try {
        return train();
    } catch (const std::exception& error) {
        const auto* ours = dynamic_cast<const Error*>(&error);
        if (folder_)
            watch::RunFolder::write_status(run_path_, "failed", *current_step_,
                                           static_cast<int>(ours ? ours->code() : ExitCode::fault), error.what());
        throw;
    }
}

void Trainer::Control::add(const Control& later) {
    stop = std::max(stop, later.stop);
    flush = flush || later.flush;
    save = save || later.save;
    writing = writing || later.writing;
    write_pending = write_pending || later.write_pending;
}

// Takes what steps in flight have brought, oldest first, until `left` are still under way. All ranks have the same
// steps under way. All but the newest are recorded; the newest row still takes what this step does from here on.
Trainer::Control Trainer::finish_down_to(std::size_t left, std::vector<Finished>& finished) {
    Control control;
    while (in_flight_.size() > left) {
        if (!finished.empty()) record(finished.back());
        Issued oldest = std::move(in_flight_.front());
        in_flight_.pop_front();
        finished.push_back(finish(std::move(oldest)));
        if (slow_ranks_ && exact_ && finished.back().step == *current_step_) compare_ranks(*current_step_);
        const Control agreed = exchange(finished.back().seconds);
        control.add(agreed);
        finished.back().slowest_seconds = agreed.slowest_seconds;
        report(finished.back());
    }
    return control;
}

ExitCode Trainer::train() {
    last_save_ = seconds_now();
    const std::int64_t every = description_.checkpoint.every, validate_every = description_.validation.every;
    std::int64_t step = state_.step;
    std::int64_t stop = options_.stop_at > 0 && step >= options_.stop_at ? stop_at_step : go_on;
    while (step < steps_ && stop == go_on) {
        ++step;
        *current_step_ = step;
        cluster::flight_recorder().set_step(step);
        fault::set_position(session_.rank(), step);
        std::vector<Finished> finished;
        Control control;
        exact_ = wants_exact_times(step);
        // Such a step has its row of times for itself.
        if (exact_ && !in_flight_.empty()) {
            const trace::Scope timed(*tracer_, regions_.step);  // the host waits for that step's work
            control.add(finish_down_to(0, finished));
        }
        if (!finished.empty()) {
            record(finished.back());
            finished.clear();
        }
        const std::int64_t epoch = training_data_->epoch_of(state_.data_cursor + samples_in_flight_);
        if (epoch != epoch_) {
            if (epoch_ >= 0) tracer_->end(regions_.epoch);
            tracer_->begin(regions_.epoch);
            epoch_ = epoch;
        }
        tracer_->begin(regions_.step);
        issue(step, epoch, seconds_now());
        control.add(finish_down_to(exact_ ? 0 : in_flight_limit_, finished));
        tracer_->end(regions_.step);

        stop = control.stop;
        if (options_.stop_at > 0 && step >= options_.stop_at) stop = std::max<std::int64_t>(stop, stop_at_step);
        const bool validate_now =
            (validate_every > 0 && step % validate_every == 0) || (step == steps_ && validation_data_);
        const auto last = [&] { return step == steps_ || stop != go_on || skipped_to_the_limit_ > 0; };
        const auto save_now = [&] { return last() || control.save || (every > 0 && step % every == 0); };
        // Before a checkpoint too: its parts come from different replicas.
        const auto compare_now = [&] { return save_now() || step % replica_check_every == 0; };
        // What looks at parameters or at this step's numbers waits for them.
        if (validate_now || compare_now()) {
            const trace::Scope timed(*tracer_, regions_.step);
            control.add(finish_down_to(0, finished));
            stop = std::max(stop, control.stop);
        }
        const bool gives_up = skipped_to_the_limit_ > 0, is_last = last(), saves = save_now();
        if (gives_up) state_.skipped_in_a_row = 0;  // who resumes after this has changed something
        if (validate_now) validate(step);
        if (control.write_pending && !control.writing) commit_checkpoint();
        if (compare_now()) compare_replicas(step);
        const bool saved = !saves || save(step, is_last);

        if (!finished.empty()) record(finished.back());
        if (control.flush) tracer_->flush();
        if (is_last && !saved) {
            tracer_->close();
            throw fault_error(
                "step {} could not be saved in {}; the newest whole checkpoint there is the one to resume from", step,
                checkpoint_folder_);
        }
        if (gives_up) {
            tracer_->close();
            throw fault_error(
                "the loss or its gradient was not finite in {} steps in a row, up to step {}; the last good parameters "
                "are in {}; lower schedule.peak_lr, clip the gradient harder, or look at the data",
                skipped_to_the_limit_, step, checkpoint_folder_ + "/" + checkpoint::file_name(step));
        }
    }
    if (epoch_ >= 0) tracer_->end(regions_.epoch);
    tracer_->close();
    const bool finished = step >= steps_;
    const std::string reason = finished ? "" : stop_reason(stop);
    const ExitCode code = finished ? ExitCode::done : ExitCode::stopped;
    if (folder_) {
        watch::RunFolder::write_status(run_path_, finished ? "finished" : "stopped", step, static_cast<int>(code),
                                       reason);
        folder_->remove_stop_file();
        watch::remove_watch_folders(run_path_);
    }
    if (finished)
        log::info("finished: step {} of {} in {}", step, steps_, human_seconds(seconds_now() - started_));
    else
        log::info("stopped at step {} of {} ({}); continue with --resume auto", step, steps_, reason);
    return code;
}

void Trainer::record(const Finished& finished) {
    trace::StepRecord row;
    row.step = finished.step;
    row.epoch = finished.epoch;
    row.loss = finished.loss;
    row.learning_rate = optim::learning_rate(description_.schedule, steps_, finished.step);
    row.gradient_norm = finished.gradient_norm;
    row.batch = finished.batch;
    row.tokens = finished.batch * description_.batch.length;
    row.loss_scale = finished.loss_scale;
    row.skipped = finished.skipped ? 1 : 0;
    row.seconds = finished.slowest_seconds;
    row.model_flop = model_flop_per_token_ * static_cast<double>(row.tokens);
    row.hardware_flop = hardware_flop_per_token_ * static_cast<double>(row.tokens);
    const ProcessMemory memory = process_memory();
    tracer_->memory(plan_.planned(), memory.resident, std::max(memory.peak, memory.resident));
    tracer_->finish_step(row, finished.rank_loss);
}

// How long this rank has worked in this step, whose row of times has nothing else yet.
void Trainer::compare_ranks(std::int64_t step) {
    const double worked = tracer_->seconds_of(regions_.step) - tracer_->seconds_of(regions_.communication);
    const trace::Scope timed(*tracer_, regions_.communication);
    const trace::Scope within(*tracer_, regions_.communication_control);
    slow_ranks_->add(step, worked);
}

Trainer::Control Trainer::exchange(double seconds) {
    std::int64_t stop = go_on;
    const double now = seconds_now();
    bool save = false;
    if (session_.rank() == 0) {
        if (folder_ && now - last_stop_check_ > 1) {
            last_stop_check_ = now;
            if (folder_->stop_file_exists()) stop = stop_file;
        }
        if (options_.stop_after_minutes > 0 && now - started_ > options_.stop_after_minutes * 60) stop = stop_for_time;
        const double minutes = description_.checkpoint.every_minutes;
        save = minutes > 0 && now - last_save_ > minutes * 60;
    }
    if (watch::requested_signal() != 0) stop = stop_for_signal + watch::requested_signal();
    using Writing = checkpoint::Writer::Progress;
    const Writing writing = writer_->progress();
    std::vector<std::int64_t> values = {stop,
                                        session_.rank() == 0 && tracer_->wants_flush() ? 1 : 0,
                                        save ? 1 : 0,
                                        writing == Writing::writing ? 1 : 0,
                                        writing != Writing::idle ? 1 : 0,
                                        static_cast<std::int64_t>(seconds * 1e9)};
    const trace::Scope timed(*tracer_, regions_.communication);
    const trace::Scope within(*tracer_, regions_.communication_control);
    control_group_->all_reduce(values, cluster::Reduce::maximum);
    return {values[0],      values[1] != 0, values[2] != 0,
            values[3] != 0, values[4] != 0, static_cast<double>(values[5]) * 1e-9};
}

void Trainer::report(const Finished& finished) {
    if (!folder_) return;
    const std::int64_t step = finished.step;
    const double seconds = finished.slowest_seconds;
    if (seconds_now() - last_status_ > status_every_seconds) {
        last_status_ = seconds_now();
        watch::RunFolder::write_status(run_path_, "running", step, 0, "");
    }
    const std::int64_t tokens = finished.batch * description_.batch.length;
    watch::StepMetrics metrics;
    metrics.step = step;
    metrics.loss = finished.loss;
    metrics.learning_rate = optim::learning_rate(description_.schedule, steps_, step);
    metrics.gradient_norm = finished.gradient_norm;
    metrics.tokens = tokens;
    metrics.seconds = seconds;
    metrics.tokens_per_second = static_cast<double>(tokens) / seconds;
    metrics.flop_per_second = model_flop_per_token_ * metrics.tokens_per_second;
    metrics.batch = finished.batch;
    metrics.loss_scale = finished.loss_scale;
    metrics.zero_gradients = finished.zero_gradients;
    metrics.skipped = finished.skipped;
    folder_->write_step(metrics);

    StepLine line;
    line.step = step;
    line.steps = steps_;
    line.samples = state_.samples;
    line.tokens = state_.tokens;
    line.batch = finished.batch;
    line.seconds = seconds;
    line.tokens_per_second = metrics.tokens_per_second;
    line.model_flops = metrics.flop_per_second / session_.size();
    line.hardware_flops = hardware_flop_per_token_ * metrics.tokens_per_second / session_.size();
    line.peak_flops = peak_flops_;
    line.loss_scale = finished.loss_scale;
    line.zero_gradients = finished.zero_gradients;
    line.not_finite = not_finite_;
    line.learning_rate = metrics.learning_rate;
    line.loss = finished.loss;
    line.gradient_norm = finished.gradient_norm;
    line.skipped = state_.skipped_steps;
    line.skipped_now = finished.skipped;
    progress_->step(line);
}

void Trainer::validate(std::int64_t step) {
    if (!validation_data_) return;
    const trace::Scope timed(*tracer_, regions_.validation);
    const std::int64_t windows = description_.validation.batches * description_.batch.global;
    tensor_group_.set_timed(false);
    context_chain_.set_timed(false);
    EvaluationShare share;
    share.micro = plan_.micro;
    share.length = description_.batch.length;
    share.replicas = {groups_.place.data, grid_.data};
    share.counts_losses = pipeline_->has_head() && tensor_group_.first();
    share.counts_tokens = share.counts_losses && context_chain_.first();
    const auto evaluate_batch = [&](const LoadWindows& load) {
        pipeline_->forward_only(validation_loss_,
                                [&](std::int64_t, std::int32_t* ids, std::int32_t* targets) { load(ids, targets); });
    };
    const Evaluation evaluation = evaluate(*devices_.backend, *validation_data_, windows, share, validation_loss_,
                                           evaluate_batch, *control_group_);
    log::info("validation at step {}: loss {:.5f}, perplexity {:.3f}, {} tokens", step, evaluation.loss,
              std::exp(evaluation.loss), with_commas(evaluation.tokens));
    if (folder_) folder_->write_validation(step, evaluation.loss);
}

checkpoint::Contents Trainer::contents(std::int64_t step) const {
    checkpoint::Contents contents;
    contents.state = state_;
    contents.state.step = step;
    contents.state.seed = description_.run.seed;
    contents.state.data_checksum = training_data_->checksum();
    contents.state.length = description_.batch.length;
    contents.state.ranks = session_.size();
    contents.state.threads = threads();
    contents.state.processor = devices_.name;
    contents.state.commit = commit();
    contents.state.finished = step >= steps_;
    contents.run_description = config::to_toml(resolved());
    contents.tokenizer_kind = training_data_->tokenizer_kind();
    contents.tokenizer_model = training_data_->tokenizer_model();
    return contents;
}

bool Trainer::save(std::int64_t step, bool wait) {
    if (step != saved_step_ && writer_->progress() != checkpoint::Writer::Progress::idle) commit_checkpoint();
    const trace::Scope timed(*tracer_, regions_.checkpoint);
    if (step == saved_step_) return writer_->finish();
    saved_step_ = step;
    last_save_ = seconds_now();
    if (!wait) return writer_->begin(contents(step), entries());
    const bool saved = writer_->write_now(contents(step), entries());
    if (saved) say_checkpoint(step);
    return saved;
}

void Trainer::commit_checkpoint() {
    const trace::Scope timed(*tracer_, regions_.checkpoint);
    if (writer_->commit()) say_checkpoint(saved_step_);
}

void Trainer::say_checkpoint(std::int64_t step) const {
    const checkpoint::Writer::Cost& cost = writer_->cost();
    const auto bytes = static_cast<double>(cost.bytes);
    log::info("checkpoint {}/{}: {} in {}, {}; training stood still for {}", checkpoint_folder_,
              checkpoint::file_name(step), human_bytes(bytes), human_seconds(cost.seconds),
              human_rate(bytes / std::max(cost.seconds, 1e-9), "B"), human_seconds(cost.still_seconds));
}

// Ranks that hold the same parameters must hold the same numbers; moments too, where each has them all.
void Trainer::compare_replicas(std::int64_t step) {
    if (grid_.replicas() == 1) return;
    const trace::Scope timed(*tracer_, regions_.communication);
    const trace::Scope within(*tracer_, regions_.communication_control);
    Hasher hasher;
    std::vector<char> piece;
    const Tensor moments = divides_optimizer() ? Tensor() : optimizer_->all_moments();
    for (const Tensor& values :
         {parameters_->all_values(), parameters_->all_working(), parameters_->all_exact(), moments}) {
        if (values.empty()) continue;
        if (!devices_.on_gpu()) {
            hasher.add(values.data(), values.bytes());
            continue;
        }
        for (std::int64_t first = 0; first < values.count(); first += compared_at_a_time) {
            const Tensor part = values.slice(first, std::min(compared_at_a_time, values.count() - first));
            piece.resize(part.bytes());
            devices_.backend->download(piece.data(), part);
            hasher.add(piece.data(), piece.size());
        }
    }
    const std::uint64_t own = hasher.digest();
    const std::vector<char> all = control_group_->gather(&own, sizeof own, 0);
    cluster::on_root(*control_group_, [&] {
        std::vector<std::uint64_t> sums(static_cast<std::size_t>(session_.size()));
        std::memcpy(sums.data(), all.data(), all.size());
        for (int rank = 0; rank < session_.size(); ++rank) {
            const int like = cluster::ranks_along(rank, grid_, {cluster::Axis::data, cluster::Axis::context}).front();
            const std::uint64_t found = sums[static_cast<std::size_t>(rank)],
                                there = sums[static_cast<std::size_t>(like)];
            if (found != there)
                throw fault_error(
                    "after step {} the parameters or moments of rank {} differ from those of rank {} (checksums {} and "
                    "{}), which "
                    "points to faulty hardware or a bug; resume from a checkpoint before it with --resume FILE",
                    step, rank, like, hash_text(found), hash_text(there));
        }
    });
}

std::string Trainer::stop_reason(std::int64_t stop) const {
    if (stop == stop_at_step) return fmt::format("--stop-at {}", options_.stop_at);
    if (stop == stop_for_time) return fmt::format("--stop-after {} minutes", options_.stop_after_minutes);
    if (stop == stop_file) return "the file \"stop\" in the run folder";
    return fmt::format("signal {}", watch::signal_word(static_cast<int>(stop - stop_for_signal)));
}

}  // namespace lockstep::train
