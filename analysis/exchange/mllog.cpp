// MLPerf's log lines (github.com/mlcommons/logging, mllog and the training rules): what a run was, when it began, what
// each step and validation gave, and how it ended.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/exchange/formats.hpp"
#include "analysis/load/configuration.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "config/run_description.hpp"

namespace lockstep::analysis {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* point = "POINT_IN_TIME";

class Lines {
  public:
    explicit Lines(Output& output) : output_(output) {}

    void write(double seconds, const char* type, const std::string& key, const Json& value, Json metadata = {}) {
        // mllog's own writer names the line of the caller; here there is none.
        metadata["file"] = "lockstep-analyze";
        metadata["lineno"] = 0;
        const Json line = {{"namespace", ""},    {"time_ms", std::llround(seconds * 1000)},
                           {"event_type", type}, {"key", key},
                           {"value", value},     {"metadata", metadata}};
        output_.write(":::MLLOG " + line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    }

  private:
    Output& output_;
};

std::string precision_word(config::Precision precision) {
    return precision == config::Precision::bf16 ? "bfloat16" : config::word_of(precision);
}

std::string schedule_words(const config::ScheduleSection& schedule) {
    return config::word_of(schedule.kind) + (schedule.warmup > 0 ? " with linear warmup" : "");
}

// The description's settings under MLPerf's names. Each replica takes batch.global / data sequences, batch.micro at a
// time.
void write_settings(Lines& lines, double seconds, const config::RunDescription& run, const trace::Header& header) {
    const auto set = [&](const char* key, const Json& value) { lines.write(seconds, point, key, value); };
    std::int64_t data = 1;
    for (const trace::RankRow& rank : header.ranks) data = std::max(data, rank.data + 1);
    set("seed", run.run.seed);
    set("config_filename", "run.toml");
    set("global_batch_size", run.batch.global);
    if (run.batch.micro > 0) {
        set("micro_batch_size", run.batch.micro);
        set("gradient_accumulation_steps", std::max<std::int64_t>(1, run.batch.global / data / run.batch.micro));
    }
    set("max_sequence_length", run.batch.length);
    // Of epochs the description does not know the steps.
    const config::ScheduleSection& schedule = run.schedule;
    if (schedule.steps > 0) set("max_steps", schedule.steps);
    set("tensor_parallelism", run.parallel.tensor);
    set("pipeline_parallelism", run.parallel.pipeline);
    set("context_parallelism", run.parallel.context);
    set("lowest_numerical_precision_in_linear", precision_word(run.precision.compute));
    set("opt_name", run.optimizer.kind);
    set("opt_base_learning_rate", run.schedule.peak_lr);
    set("opt_end_learning_rate", run.schedule.final_lr);
    set("opt_learning_rate_warmup_steps", run.schedule.warmup);
    if (schedule.steps > 0 && schedule.kind != config::ScheduleKind::constant)
        set("opt_learning_rate_decay_steps", schedule.kind == config::ScheduleKind::wsd
                                                 ? schedule.final_decay(schedule.steps)
                                                 : schedule.steps - schedule.warmup);
    set("opt_learning_rate_decay_schedule", schedule_words(run.schedule));
    set("opt_gradient_clip_norm", run.optimizer.clip);
    set("opt_weight_decay", run.optimizer.weight_decay);
    if (run.optimizer.kind == "adamw") {
        set("opt_adamw_beta_1", run.optimizer.beta1);
        set("opt_adamw_beta_2", run.optimizer.beta2);
        set("opt_adamw_epsilon", run.optimizer.epsilon);
        set("opt_adamw_weight_decay", run.optimizer.weight_decay);
    }
}

// Of rank 0, in this row; 0 where there was no validation, or the trace has no such region.
double validation_seconds(const trace::TraceFile& file, std::size_t row) {
    std::vector<double> seconds;
    if (file.steps()[row].validation.tokens == 0) return 0;
    for (std::size_t region = 0; region < file.regions(); ++region) {
        if (file.header().regions[region].path != "validation") continue;
        file.read_times(row, 1, seconds);
        return std::isfinite(seconds[region]) ? seconds[region] : 0;
    }
    return 0;
}

// Blocks of training between validations, the validations, and each step's numbers.
class Training {
  public:
    Training(Lines& lines, std::int64_t samples_before) : lines_(lines), samples_(samples_before) {}

    void add(const trace::StepRow& row, double validation) {
        const double trained = row.wall_time - validation;
        begin_block(trained - row.seconds);
        samples_ += row.batch;
        lines_.write(trained, point, "tracked_stats",
                     {{"train_loss", row.loss},
                      {"learning_rate", row.learning_rate},
                      {"throughput", row.per_second(static_cast<double>(row.batch))}},
                     {{"step", row.step}, {"samples_count", samples_}});
        last_ = row.wall_time;
        if (row.validation.tokens == 0) return;
        end_block(trained);
        const Json count = {{"samples_count", samples_}};
        lines_.write(trained, "INTERVAL_START", "eval_start", nullptr, count);
        lines_.write(row.wall_time, point, "eval_accuracy", row.validation.loss, count);
        lines_.write(row.wall_time, "INTERVAL_END", "eval_stop", nullptr, count);
    }
    void finish(const char* status) {
        end_block(last_);
        lines_.write(last_, "INTERVAL_END", "run_stop", nullptr, {{"status", status}, {"samples_count", samples_}});
    }

  private:
    void begin_block(double seconds) {
        if (!in_block_) lines_.write(seconds, "INTERVAL_START", "block_start", nullptr, {{"samples_count", samples_}});
        in_block_ = true;
    }
    void end_block(double seconds) {
        if (in_block_) lines_.write(seconds, "INTERVAL_END", "block_stop", nullptr, {{"samples_count", samples_}});
        in_block_ = false;
    }

    Lines& lines_;
    std::int64_t samples_;
    bool in_block_ = false;
    double last_ = 0;
};

}  // namespace

void write_mllog(const trace::Run& run, Output& output) {
    if (run.header().is_imported())
        throw usage_error("{} was imported from a table: it has no steps for MLPerf's log", run.path);
    const auto part_with_steps =
        std::find_if(run.parts.begin(), run.parts.end(), [](const trace::RunPart& part) { return part.rows > 0; });
    if (part_with_steps == run.parts.end()) throw usage_error("{} has no steps for MLPerf's log", run.path);
    const trace::TraceFile& first = part_with_steps->file;
    const config::RunDescription description =
        config::parse_foreign_description(run.header().description, run.parts.back().file.path());
    const trace::StepRow& begin = first.steps().front();
    const double trained = begin.wall_time - validation_seconds(first, 0) - begin.seconds;
    Lines lines(output);
    lines.write(first.header().start_time, "INTERVAL_START", "init_start", nullptr);
    write_settings(lines, first.header().start_time, description, run.header());
    lines.write(trained, "INTERVAL_END", "init_stop", nullptr);
    lines.write(trained, "INTERVAL_START", "run_start", nullptr);
    if (begin.step > 1)
        log::warning("{} begins at step {}: earlier steps are assumed to have had the same batch", run.path,
                     begin.step);
    Training training(lines, (begin.step - 1) * begin.batch);
    std::int64_t last = 0;
    for (const trace::RunPart& part : run.parts)
        for (std::size_t row = 0; row < part.rows; ++row) {
            const trace::StepRow& step = part.file.steps()[row];
            training.add(step, validation_seconds(part.file, row));
            last = step.step;
        }
    const std::int64_t wanted = description.schedule.steps;
    const auto status = parse_json<Json>(status_of(run));
    const bool finished =
        wanted > 0 ? last >= wanted : status.is_object() && status.value("state", Json()) == "finished";
    training.finish(finished ? "success" : "aborted");
}

}  // namespace lockstep::analysis
