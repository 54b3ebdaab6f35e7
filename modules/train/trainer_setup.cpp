// Everything before the first step.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cluster/agree.hpp"
#include "device/parallel.hpp"
#include "model/flops.hpp"
#include "train/model_file.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    std::string name = "unknown processor";
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0) {
            name = line.substr(std::min(line.size(), line.find(':') + 2));
            break;
        }
    return name + ", " + kernels::cpu_instruction_set();
}

Trainer::Trainer(const cluster::Session& session, config::RunDescription description, TrainOptions options)
    : session_(session), description_(std::move(description)), options_(std::move(options)), started_(seconds_now()) {
    data_communicator_ = session.make_world_communicator();
    control_communicator_ = session.make_world_communicator();
    set_threads(session.place().threads);
    backend_ = kernels::make_cpu_backend();
    checkpoint_folder_ = description_.checkpoint.folder + "/" + description_.run.name;

    check_batch();
    cluster::together(*control_communicator_, [&] { open_data(); });
    cluster::on_root(*control_communicator_,
                     [&] { folder_ = std::make_unique<RunFolder>(description_.run.folder, description_.run.name); });
    decide_resume();
    if (already_finished_) return;
    if (folder_) log::add_file(folder_->path() + "/log.txt");
    check_checkpoint_folder();
    build();
    if (!resume_path_.empty())
        restore(resume_path_);
    else
        parameters_->initialize(description_.run.seed);
    // Only now: a launch that could not resume leaves what is said of the run as it was.
    if (folder_) {
        folder_->write_description(config::to_toml(description_));
        folder_->remove_stop_file();
        folder_->write_status("running", state_.step, 0, "");
    }
    try {
        start_trace();
    } catch (const Error& error) {
        if (folder_) folder_->write_status("failed", state_.step, static_cast<int>(error.code()), error.what());
        throw;
    }
}

void Trainer::check_batch() {
    auto& batch = description_.batch;
    const std::int64_t ranks = session_.size(), data_ranks = description_.parallel.data;
    if (data_ranks != 0 && data_ranks != ranks)
        throw usage_error(
            "parallel.data = {}, but {} ranks were started; start mpirun -np {} or set parallel.data = \"auto\"",
            data_ranks, ranks, data_ranks);
    if (batch.global % ranks != 0)
        throw usage_error("batch.global = {} sequences do not divide among {} ranks; {} or {} would", batch.global,
                          ranks, std::max(ranks, batch.global / ranks * ranks), (batch.global / ranks + 1) * ranks);
    const std::int64_t share = batch.global / ranks;
    if (batch.micro == 0) {
        // As many sequences at once as fit about 8192 tokens: larger products gain little, memory grows in proportion.
        batch.micro = std::max<std::int64_t>(1, std::min(share, 8192 / std::max<std::int64_t>(1, batch.length)));
        while (share % batch.micro != 0) --batch.micro;
    }
    if (share % batch.micro != 0)
        throw usage_error(
            "batch.micro = {} does not divide the {} sequences a step of each rank (batch.global = {} on {} ranks)",
            batch.micro, share, batch.global, ranks);
    accumulation_ = share / batch.micro;
}

void Trainer::open_data() {
    const auto& data = description_.data;
    data::DatasetOptions options;
    options.paths = data.train;
    options.tokenizer = data.tokenizer;
    options.length = description_.batch.length;
    options.seed = description_.run.seed;
    options.random = data.order == "random";
    training_data_.emplace(options);
    if (!data.validation.empty()) {
        options.paths = data.validation;
        options.key = "[data] validation";
        options.random = false;
        validation_data_.emplace(options);
    } else if (data.validation_fraction > 0) {
        validation_data_.emplace(training_data_->split_off(data.validation_fraction));
    }
    const std::int64_t vocabulary = training_data_->vocabulary(), of_model = description_.model.vocabulary;
    for (const auto* set : {&training_data_, &validation_data_}) {
        if (!*set || (*set)->vocabulary() <= of_model) continue;
        throw usage_error(
            "the {} data has a vocabulary of {} tokens, the model's is {}; set model.vocabulary to at least {} or use "
            "the data this model was made for",
            set == &training_data_ ? "training" : "validation", (*set)->vocabulary(), of_model, (*set)->vocabulary());
    }
    if (vocabulary < of_model)
        log::info("the data uses {} of the model's {} tokens", with_commas(vocabulary), with_commas(of_model));

    const auto& schedule = description_.schedule;
    steps_ = schedule.steps;
    if (steps_ == 0)
        steps_ =
            std::max<std::int64_t>(1, std::llround(schedule.epochs * static_cast<double>(training_data_->windows()) /
                                                   static_cast<double>(description_.batch.global)));
    if (schedule.warmup > steps_)
        throw usage_error("schedule.warmup = {} is longer than the {} steps of the run", schedule.warmup, steps_);
    log::info("training data: {} tokens, {} windows of {}; {} steps of {} sequences are {:.2f} epochs",
              with_commas(training_data_->tokens()), with_commas(training_data_->windows()), description_.batch.length,
              with_commas(steps_), description_.batch.global,
              static_cast<double>(steps_ * description_.batch.global) / static_cast<double>(training_data_->windows()));
}

void Trainer::decide_resume() {
    cluster::on_root(*control_communicator_, [&] {
        const bool any = !checkpoint::list_checkpoints(checkpoint_folder_).empty();
        if (options_.resume.empty()) {
            if (any)
                throw usage_error(
                    "the run {} has checkpoints in {}; continue it with --resume auto, or begin another with a new "
                    "run.name",
                    description_.run.name, checkpoint_folder_);
            return;
        }
        if (options_.resume != "auto") {
            resume_path_ = options_.resume;
            return;
        }
        std::vector<std::string> skipped;
        resume_path_ = checkpoint::find_newest(checkpoint_folder_, skipped);
        for (const auto& why : skipped) log::warning("passed over: {}", why);
        if (resume_path_.empty() && any)
            throw damaged_error(
                "no checkpoint in {} is whole; move them away to begin again, or give one with --resume FILE",
                checkpoint_folder_);
        if (resume_path_.empty()) log::info("nothing to resume in {}: a fresh start", checkpoint_folder_);
    });
    resume_path_ = control_communicator_->broadcast_text(resume_path_, 0);
    if (resume_path_.empty()) return;
    cluster::together(*control_communicator_, [&] { state_ = checkpoint::read_contents(resume_path_).state; });
    already_finished_ = state_.step >= steps_;
}

void Trainer::check_checkpoint_folder() const {
    if (!description_.run.self_test) return;
    cluster::on_root(*control_communicator_, [&] {
        std::error_code problem;
        std::filesystem::create_directories(checkpoint_folder_, problem);
        const std::string probe = checkpoint_folder_ + "/probe.tmp";
        std::ofstream file(probe);
        file << "a checkpoint could be written here\n";
        file.close();
        if (problem || !file)
            throw usage_error("the checkpoint folder {} cannot be written: {}", checkpoint_folder_,
                              problem ? problem.message() : system_error_text());
        std::filesystem::remove(probe, problem);
    });
}

void Trainer::start_trace() {
    const auto& place = session_.place();
    trace::TracerOptions options;
    options.detail = trace::detail_from(description_.trace.detail);
    options.folder = description_.run.folder + "/" + description_.run.name;
    options.run_name = description_.run.name;
    options.description = config::to_toml(description_);
    options.steps_left = steps_ - state_.step;
    options.rank.host = place.host;
    options.rank.cores = place.cores;
    options.rank.threads = threads();
    options.rank.data = session_.rank();
    tracer_ = std::make_unique<trace::Tracer>(std::move(options), session_.make_world_communicator());
    regions_.initialization = tracer_->region("initialization");
    regions_.epoch = tracer_->region("epoch");
    regions_.step = tracer_->region("epoch/step", trace::Detail::step);
    regions_.data_loading = tracer_->region("epoch/step/data_loading");
    regions_.data_movement = tracer_->region("epoch/step/data_movement");
    regions_.forward = tracer_->region("epoch/step/forward");
    regions_.loss = tracer_->region("epoch/step/loss");
    regions_.backward = tracer_->region("epoch/step/backward");
    regions_.communication = tracer_->region("epoch/step/communication");
    regions_.communication_data = tracer_->region("epoch/step/communication/data");
    regions_.optimizer = tracer_->region("epoch/step/optimizer");
    regions_.validation = tracer_->region("validation");
    regions_.checkpoint = tracer_->region("checkpoint");
    tracer_->begin(regions_.initialization);

    const auto& model = description_.model;
    model::StageOptions stage;
    stage.range = model::whole_model(model);
    stage.shape = {description_.batch.micro, description_.batch.length};
    stage.tracer = tracer_.get();
    stage_ = std::make_unique<model::Stage>(*backend_, *parameters_, model, stage);
    batch_ = std::make_unique<BatchTensors>(backend_->device(), stage.shape);
    host_ids_.resize(static_cast<std::size_t>(stage.shape.rows()));
    host_targets_.resize(static_cast<std::size_t>(stage.shape.rows()));
    flop_per_token_ = model::training_flop_per_token(model, description_.batch.length);
    say_memory_plan();
    if (folder_) folder_->open_metrics(state_.step);
    progress_ = std::make_unique<Progress>(state_.step);
    tracer_->end(regions_.initialization);
}

void Trainer::build() {
    const auto& model = description_.model;
    parameters_ = std::make_unique<model::ParameterSet>(
        backend_->device(), model::describe_parameters(model, model::whole_model(model)), true);
    optimizer_ = std::make_unique<optim::AdamW>(*backend_, *parameters_, description_.optimizer);
    writer_ = std::make_unique<checkpoint::Writer>(checkpoint_folder_, description_.checkpoint.keep,
                                                   session_.make_world_communicator());
    log::info("lockstep {} ({}), {}: {} rank{} x {} thread{} on {}", version(), commit(), processor_name(),
              session_.size(), session_.size() == 1 ? "" : "s", threads(), threads() == 1 ? "" : "s",
              session_.place().host);
    log::info("model: {} {}, {} parameters, {:.3g} FLOP a token", model.preset, model.mixer,
              with_commas(model::parameter_count(model)),
              model::training_flop_per_token(model, description_.batch.length));
}

std::vector<checkpoint::Entry> Trainer::entries() const {
    std::vector<checkpoint::Entry> entries = parameter_entries(*parameters_);
    const auto& descriptions = parameters_->descriptions();
    for (std::size_t i = 0; i < descriptions.size(); ++i)
        entries.push_back({"optimizer/first_moment/" + descriptions[i].name, optimizer_->first_moment(i)});
    for (std::size_t i = 0; i < descriptions.size(); ++i)
        entries.push_back({"optimizer/second_moment/" + descriptions[i].name, optimizer_->second_moment(i)});
    return entries;
}

void Trainer::restore(const std::string& path) {
    checkpoint::load(path, entries(), *data_communicator_);
    saved_step_ = state_.step;
    log::info("resumed from {} at step {}", path, state_.step);
    if (session_.rank() != 0) return;  // warnings of other ranks are printed too
    const std::string processor = processor_name();
    std::string differences;
    const auto compare = [&](const auto& then, const auto& now, const char* what) {
        if (then != now)
            differences += fmt::format("{}{} {} (then {})", differences.empty() ? "" : ", ", what, now, then);
    };
    compare(state_.ranks, static_cast<std::int64_t>(session_.size()), "ranks");
    compare(state_.threads, static_cast<std::int64_t>(threads()), "threads a rank");
    compare(state_.processor, processor, "processor");
    compare(state_.commit, std::string(commit()), "commit");
    if (!differences.empty())
        log::warning("this resume will not repeat an uninterrupted run bit for bit: {}", differences);
    if (state_.seed != description_.run.seed)
        log::warning("run.seed is {}, the checkpoint's was {}: the order of data changes here", description_.run.seed,
                     state_.seed);
}

void Trainer::say_memory_plan() const {
    const auto bytes = [](std::size_t value) { return human_bytes(static_cast<double>(value)); };
    const std::size_t parameters = parameters_->all_values().bytes();
    log::info(
        "memory a rank: parameters {}, gradients {}, moments {}, activations {}, workspace {}; {} sequences of {} "
        "tokens at a "
        "time, {} micro-step{} a step",
        bytes(parameters), bytes(parameters), bytes(optimizer_->bytes()), bytes(stage_->activation_bytes()),
        bytes(stage_->workspace_bytes()), description_.batch.micro, description_.batch.length, accumulation_,
        accumulation_ == 1 ? "" : "s");
}

}  // namespace lockstep::train
