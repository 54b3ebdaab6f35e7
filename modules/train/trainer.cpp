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
#include "device/parallel.hpp"
#include "optim/schedule.hpp"
#include "train/stop_request.hpp"

namespace lockstep::train {
namespace {

// Every so many steps the replicas' parameters are compared.
constexpr std::int64_t replica_check_every = 100;

// How often status.json says how far the run is.
constexpr double status_every_seconds = 10;

enum StopCode : std::int64_t { go_on = 0, stop_at_step = 1, stop_for_time = 2, stop_file = 3, stop_for_signal = 100 };

}  // namespace

Trainer::~Trainer() = default;

ExitCode Trainer::run() {
    if (already_finished_) {
        log::info("the run {} is finished: its checkpoint {} is of step {} of {}", description_.run.name, resume_path_,
                  state_.step, steps_);
        return ExitCode::done;
    }
    watch_signals();
    try {
        return train();
    } catch (const std::exception& error) {
        const auto* ours = dynamic_cast<const Error*>(&error);
        if (folder_)
            RunFolder::write_status(run_path_, "failed", *current_step_,
                                    static_cast<int>(ours ? ours->code() : ExitCode::fault), error.what());
        throw;
    }
}

ExitCode Trainer::train() {
    last_save_ = seconds_now();
    const std::int64_t every = description_.checkpoint.every, validate_every = description_.validation.every;
    std::int64_t step = state_.step;
    std::int64_t stop = options_.stop_at > 0 && step >= options_.stop_at ? stop_at_step : go_on;
    while (step < steps_ && stop == go_on) {
        ++step;
        *current_step_ = step;
        fault::set_position(session_.rank(), step);
        const std::int64_t epoch = training_data_->epoch_of(state_.data_cursor);
        if (epoch != epoch_) {
            if (epoch_ >= 0) tracer_->end(regions_.epoch);
            tracer_->begin(regions_.epoch);
            epoch_ = epoch;
        }
        tracer_->begin(regions_.step);
        const double start = seconds_now();
        const StepResult result = make_step(step);
        const double seconds = seconds_now() - start;
        const Control control = exchange(step, seconds);
        tracer_->end(regions_.step);
        stop = control.stop;
        report(step, result, control.slowest_seconds);
        const std::int64_t skipped_in_a_row = state_.skipped_in_a_row;
        const bool given_up = skipped_in_a_row >= description_.optimizer.skip_limit;
        if (given_up) state_.skipped_in_a_row = 0;  // who resumes after this has changed something
        const bool last = step == steps_ || stop != go_on || given_up;
        if ((validate_every > 0 && step % validate_every == 0) || (step == steps_ && validation_data_)) validate(step);
        if (control.write_pending && !control.writing) commit_checkpoint();
        const bool save_now = last || control.save || (every > 0 && step % every == 0);
        // Before a checkpoint too: its parts come from different replicas.
        if (save_now || step % replica_check_every == 0) compare_replicas(step);
        const bool saved = !save_now || save(step, last);

        record(step, epoch, result, control.slowest_seconds);
        if (control.flush) tracer_->flush();
        if (last && !saved) {
            tracer_->close();
            throw fault_error(
                "step {} could not be saved in {}; the newest whole checkpoint there is the one to resume from", step,
                checkpoint_folder_);
        }
        if (given_up) {
            tracer_->close();
            throw fault_error(
                "the loss or its gradient was not finite in {} steps in a row, up to step {}; the last good parameters "
                "are in {}; lower schedule.peak_lr, clip the gradient harder, or look at the data",
                skipped_in_a_row, step, checkpoint_folder_ + "/" + checkpoint::file_name(step));
        }
    }
    if (epoch_ >= 0) tracer_->end(regions_.epoch);
    tracer_->close();
    const bool finished = step >= steps_;
    const std::string reason = finished ? "" : stop_reason(stop);
    const ExitCode code = finished ? ExitCode::done : ExitCode::stopped;
    if (folder_) {
        RunFolder::write_status(run_path_, finished ? "finished" : "stopped", step, static_cast<int>(code), reason);
        folder_->remove_stop_file();
    }
    if (finished)
        log::info("finished: step {} of {} in {}", step, steps_, human_seconds(seconds_now() - started_));
    else
        log::info("stopped at step {} of {} ({}); continue with --resume auto", step, steps_, reason);
    return code;
}

void Trainer::record(std::int64_t step, std::int64_t epoch, const StepResult& result, double slowest_seconds) {
    trace::StepRecord row;
    row.step = step;
    row.epoch = epoch;
    row.loss = result.loss;
    row.learning_rate = optim::learning_rate(description_.schedule, steps_, step);
    row.gradient_norm = result.gradient_norm;
    row.batch = description_.batch.global;
    row.tokens = description_.batch.global * description_.batch.length;
    row.skipped = result.skipped ? 1 : 0;
    row.seconds = slowest_seconds;
    row.model_flop = row.hardware_flop = flop_per_token_ * static_cast<double>(row.tokens);
    const ProcessMemory memory = process_memory();
    const std::size_t planned = 2 * parameters_->all_values().bytes() + optimizer_->bytes() +
                                stage_->activation_bytes() + stage_->workspace_bytes();
    tracer_->memory(planned, memory.resident, std::max(memory.peak, memory.resident));
    tracer_->finish_step(row, result.rank_loss);
}

void Trainer::load_batch(std::int64_t first_sample, std::int64_t micro_step) {
    const std::int64_t length = description_.batch.length, micro = micro_;
    const std::int64_t first = first_sample + (session_.rank() * accumulation_ + micro_step) * micro;
    {
        const trace::Scope timed(*tracer_, regions_.data_loading);
        for (std::int64_t i = 0; i < micro; ++i)
            training_data_->fetch(first + i, host_ids_.data() + i * length, host_targets_.data() + i * length);
    }
    const trace::Scope timed(*tracer_, regions_.data_movement);
    std::memcpy(batch_->ids.data(), host_ids_.data(), batch_->ids.bytes());
    std::memcpy(batch_->targets.data(), host_targets_.data(), batch_->targets.bytes());
}

Trainer::StepResult Trainer::make_step(std::int64_t step) {
    StepResult result;
    const auto tokens = static_cast<double>(description_.batch.global * description_.batch.length);
    const auto gradient_scale = static_cast<float>(1.0 / tokens);
    stage_->set_inner_rate_factor(optim::inner_rate_factor(description_.model, description_.schedule.warmup, step));
    {
        const trace::Scope timed(*tracer_, regions_.optimizer);
        backend_->fill(parameters_->all_gradients(), 0);
    }
    double sum = 0;
    for (std::int64_t micro_step = 0; micro_step < accumulation_; ++micro_step) {
        load_batch(state_.data_cursor, micro_step);
        {
            const trace::Scope timed(*tracer_, regions_.forward);
            stage_->forward(0, batch_->ids);
        }
        {
            const trace::Scope timed(*tracer_, regions_.loss);
            stage_->loss(0, batch_->targets, gradient_scale, batch_->losses);
            sum += backend_->sum(batch_->losses);
        }
        {
            const trace::Scope timed(*tracer_, regions_.backward);
            stage_->backward(0, batch_->ids);
        }
    }
    if (fault::at("loss") == "nan") sum = std::nan("");
    result.rank_loss = sum * session_.size() / tokens;
    {
        const trace::Scope timed(*tracer_, regions_.communication);
        const trace::Scope within(*tracer_, regions_.communication_data);
        data_communicator_->all_reduce(parameters_->all_gradients(), cluster::Reduce::sum);
        result.loss = data_communicator_->all_sum(sum) / tokens;
    }
    {
        const trace::Scope timed(*tracer_, regions_.optimizer);
        result.gradient_norm = optimizer_->gradient_norm();
        // Both are the same on every rank, so all skip or none does.
        result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.gradient_norm);
        if (!result.skipped) {
            ++state_.optimizer_steps;
            optimizer_->update(optim::learning_rate(description_.schedule, steps_, step), result.gradient_norm,
                               state_.optimizer_steps);
        }
    }
    state_.step = step;
    state_.samples += description_.batch.global;
    state_.data_cursor += description_.batch.global;
    state_.tokens += description_.batch.global * description_.batch.length;
    state_.skipped_steps += result.skipped ? 1 : 0;
    state_.skipped_in_a_row = result.skipped ? state_.skipped_in_a_row + 1 : 0;
    fault::at("step_end");
    return result;
}

Trainer::Control Trainer::exchange(std::int64_t step, double seconds) {
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
    if (options_.stop_at > 0 && step >= options_.stop_at) stop = stop_at_step;
    if (requested_signal() != 0) stop = stop_for_signal + requested_signal();
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
    control_communicator_->all_reduce(values, cluster::Reduce::maximum);
    return {values[0],      values[1] != 0, values[2] != 0,
            values[3] != 0, values[4] != 0, static_cast<double>(values[5]) * 1e-9};
}

void Trainer::report(std::int64_t step, const StepResult& result, double seconds) {
    if (!folder_) return;
    if (seconds_now() - last_status_ > status_every_seconds) {
        last_status_ = seconds_now();
        RunFolder::write_status(run_path_, "running", step, 0, "");
    }
    const std::int64_t tokens = description_.batch.global * description_.batch.length;
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = result.loss;
    metrics.learning_rate = optim::learning_rate(description_.schedule, steps_, step);
    metrics.gradient_norm = result.gradient_norm;
    metrics.tokens = tokens;
    metrics.seconds = seconds;
    metrics.tokens_per_second = static_cast<double>(tokens) / seconds;
    metrics.flop_per_second = flop_per_token_ * metrics.tokens_per_second;
    metrics.skipped = result.skipped;
    folder_->write_step(metrics);

    StepLine line;
    line.step = step;
    line.steps = steps_;
    line.samples = state_.samples;
    line.tokens = state_.tokens;
    line.batch = description_.batch.global;
    line.seconds = seconds;
    line.tokens_per_second = metrics.tokens_per_second;
    line.flop_per_second = metrics.flop_per_second;
    line.learning_rate = metrics.learning_rate;
    line.loss = result.loss;
    line.gradient_norm = result.gradient_norm;
    line.skipped = state_.skipped_steps;
    line.skipped_now = result.skipped;
    progress_->step(line);
}

void Trainer::validate(std::int64_t step) {
    if (!validation_data_) return;
    const trace::Scope timed(*tracer_, regions_.validation);
    const std::int64_t windows = description_.validation.batches * description_.batch.global;
    const Evaluation evaluation =
        evaluate(*backend_, *stage_, *batch_, *validation_data_, windows, *data_communicator_);
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
    contents.state.processor = processor_name();
    contents.state.commit = commit();
    contents.state.finished = step >= steps_;
    contents.run_description = config::to_toml(description_);
    contents.tokenizer_kind = training_data_->tokenizer_kind();
    contents.tokenizer_model = training_data_->tokenizer_model();
    return contents;
}

bool Trainer::save(std::int64_t step, bool wait) {
    const trace::Scope timed(*tracer_, regions_.checkpoint);
    if (step == saved_step_) return writer_->finish();
    saved_step_ = step;
    last_save_ = seconds_now();
    if (!wait) return writer_->begin(contents(step), entries());
    const bool saved = writer_->write_now(contents(step), entries());
    if (saved) log::info("checkpoint {}/{}", checkpoint_folder_, checkpoint::file_name(step));
    return saved;
}

void Trainer::commit_checkpoint() {
    const trace::Scope timed(*tracer_, regions_.checkpoint);
    if (writer_->commit()) log::info("checkpoint {}/{}", checkpoint_folder_, checkpoint::file_name(saved_step_));
}

void Trainer::compare_replicas(std::int64_t step) {
    if (session_.size() == 1) return;
    const trace::Scope timed(*tracer_, regions_.communication);
    const trace::Scope within(*tracer_, regions_.communication_control);
    Hasher hasher;
    for (const Tensor& values : {parameters_->all_values(), optimizer_->all_moments()})
        hasher.add(values.data(), values.bytes());
    const std::uint64_t own = hasher.digest();
    const std::vector<char> all = control_communicator_->gather(&own, sizeof own, 0);
    cluster::on_root(*control_communicator_, [&] {
        std::vector<std::uint64_t> sums(static_cast<std::size_t>(session_.size()));
        std::memcpy(sums.data(), all.data(), all.size());
        for (std::size_t rank = 1; rank < sums.size(); ++rank)
            if (sums[rank] != sums[0])
                throw fault_error(
                    "after step {} the parameters or moments of rank {} differ from those of rank 0 (checksums {} and "
                    "{}), which "
                    "points to faulty hardware or a bug; resume from a checkpoint before it with --resume FILE",
                    step, rank, hash_text(sums[rank]), hash_text(sums[0]));
    });
}

std::string Trainer::stop_reason(std::int64_t stop) const {
    if (stop == stop_at_step) return fmt::format("--stop-at {}", options_.stop_at);
    if (stop == stop_for_time) return fmt::format("--stop-after {} minutes", options_.stop_after_minutes);
    if (stop == stop_file) return "the file \"stop\" in the run folder";
    return fmt::format("signal {}", signal_word(static_cast<int>(stop - stop_for_signal)));
}

}  // namespace lockstep::train
