// Everything before the first step.
#include <fmt/ranges.h>

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
#include "device/sync.hpp"
#include "model/flops.hpp"
#include "train/model_file.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {
namespace {

Type compute_type(const std::string& name) {
    if (name == "bf16") return Type::bf16;
    return name == "fp16" ? Type::fp16 : Type::fp32;
}

}  // namespace

Trainer::Trainer(cluster::Session& session, config::RunDescription description, TrainOptions options)
    : session_(session), description_(std::move(description)), options_(std::move(options)), started_(seconds_now()) {
    control_communicator_ = session.make_world_communicator();
    set_threads(session.place().threads);
    set_sync_mode(sync_mode_from(description_.sync.mode));
    devices_ = open_devices(description_.run.device, session);
    if (!devices_.on_gpu() && description_.precision.compute != "fp32")
        throw usage_error(
            "precision.compute = \"{}\": this version computes in fp32 on CPUs; set it to \"fp32\", or run on GPUs",
            description_.precision.compute);
    run_path_ = description_.run.folder + "/" + description_.run.name;
    checkpoint_folder_ = description_.checkpoint.folder + "/" + description_.run.name;

    check_batch();
    cluster::together(*control_communicator_, [&] { open_data(); });
    check_same_data();
    cluster::on_root(*control_communicator_, [&] {
        folder_ = std::make_unique<RunFolder>(run_path_);
        checkpoint_lock_ = std::make_unique<RunLock>(checkpoint_folder_, ".lock");
    });
    decide_resume();
    if (already_finished_) return;
    if (folder_) log::add_file(run_path_ + "/log.txt");
    check_checkpoint_folder();
    build();
    if (!resume_path_.empty())
        restore(resume_path_);
    else
        parameters_->initialize(*devices_.backend, description_.run.seed);
    // Only now: a launch that could not resume leaves what is said of the run as it was.
    if (folder_) {
        folder_->write_description(config::to_toml(description_));
        folder_->remove_stop_file();
        RunFolder::write_status(run_path_, "running", state_.step, 0, "");
    }
    leave_last_words();
    try {
        start_trace();
    } catch (const Error& error) {
        if (folder_)
            RunFolder::write_status(run_path_, "failed", state_.step, static_cast<int>(error.code()), error.what());
        throw;
    }
}

// From here on the run is this launch's: however it ends, status.json and log.txt say so, also when a rank other than 0
// fails alone and rank 0 can say nothing any more.
void Trainer::leave_last_words() {
    *current_step_ = state_.step;
    // They are spoken after this trainer is gone, so they hold what they need.
    const bool logs_already = folder_ != nullptr;
    session_.set_last_words(
        [path = run_path_, step = current_step_, logs_already](ExitCode code, const std::string& sentence) {
            RunFolder::write_status(path, "failed", *step, static_cast<int>(code), sentence);
            if (!logs_already) log::add_file(path + "/log.txt");
        });
}

void Trainer::check_batch() {
    const auto& batch = description_.batch;
    const std::int64_t ranks = session_.size(), data_ranks = description_.parallel.data;
    if (data_ranks != 0 && data_ranks != ranks)
        throw usage_error(
            "parallel.data = {}, but {} ranks were started; start mpirun -np {} or set parallel.data = \"auto\"",
            data_ranks, ranks, data_ranks);
    if (batch.global % ranks != 0)
        throw usage_error("batch.global = {} sequences do not divide among {} ranks; {} would", batch.global, ranks,
                          batch.global < ranks ? fmt::format("{}", ranks)
                                               : fmt::format("{} or {}", batch.global / ranks * ranks,
                                                             (batch.global / ranks + 1) * ranks));
    const std::int64_t share = batch.global / ranks;
    micro_ = batch.micro;
    if (micro_ == 0) {
        // As many sequences at once as fit so many tokens: larger products gain little, memory grows in proportion.
        const std::int64_t tokens = devices_.on_gpu() ? 32768 : 8192;
        micro_ = std::max<std::int64_t>(1, std::min(share, tokens / std::max<std::int64_t>(1, batch.length)));
        while (share % micro_ != 0) --micro_;
    }
    if (share % micro_ != 0)
        throw usage_error(
            "batch.micro = {} does not divide the {} sequences a step of each rank (batch.global = {} on {} ranks)",
            batch.micro, share, batch.global, ranks);
    accumulation_ = share / micro_;
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

// Every rank must see the same tokens: a path may name different files on different nodes.
void Trainer::check_same_data() const {
    const auto checksum = static_cast<std::int64_t>(training_data_->checksum());
    const std::int64_t validation = validation_data_ ? validation_data_->windows() : 0;
    std::vector<std::int64_t> least = {checksum, training_data_->windows(), validation}, most = least;
    control_communicator_->all_reduce(least, cluster::Reduce::minimum);
    control_communicator_->all_reduce(most, cluster::Reduce::maximum);
    if (least != most)
        throw usage_error(
            "the ranks see different data under the same names ([data] train or validation); put the files where every "
            "node sees the same ones");
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
    cluster::together(*control_communicator_, [&] {
        const checkpoint::Contents contents = checkpoint::read_contents(resume_path_);
        state_ = contents.state;
        check_same_model(contents.run_description);
        if (session_.rank() == 0) say_differences(contents.run_description);
    });
    if (state_.step >= steps_ && options_.resume != "auto")
        throw usage_error(
            "{} is of step {}, and the schedule ends at step {}: nothing is left to train; raise schedule.steps",
            resume_path_, state_.step, steps_);
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
    options.folder = run_path_;
    options.run_name = description_.run.name;
    config::RunDescription resolved = description_;
    resolved.batch.micro = micro_;
    options.description = config::to_toml(resolved);
    options.steps_left = steps_ - state_.step;
    options.rank.host = place.host;
    options.rank.cores = place.cores;
    options.rank.threads = threads();
    if (devices_.on_gpu()) options.rank.gpu = devices_.name;
    const cluster::GridPlace grid = cluster::grid_place(session_.rank(), {1, session_.size(), 1});
    options.rank.data = grid.data;
    options.rank.tensor = grid.tensor;
    options.rank.pipeline = grid.pipeline;
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
    regions_.communication_control = tracer_->region("epoch/step/communication/control");
    regions_.optimizer = tracer_->region("epoch/step/optimizer");
    regions_.validation = tracer_->region("validation");
    regions_.checkpoint = tracer_->region("checkpoint");
    tracer_->begin(regions_.initialization);

    make_stage();
    say_memory_plan();
    if (folder_) folder_->open_metrics(state_.step);
    progress_ = std::make_unique<Progress>(state_.step);
    tracer_->end(regions_.initialization);
}

void Trainer::make_stage() {
    kernels::Backend& backend = *devices_.backend;
    const auto& model = description_.model;
    model::StageOptions stage;
    stage.range = model::whole_model(model);
    stage.shape = {micro_, description_.batch.length};
    stage.tracer = tracer_.get();
    stage_ = std::make_unique<model::Stage>(backend, *parameters_, model, stage);
    batch_ = std::make_unique<BatchTensors>(backend.device(), stage.shape);
    scalars_memory_ = Arena(backend.device(), Arena::device_alignment, "the step's scalars");
    losses_ = scalars_memory_.allocate(Type::fp64, {2});
    cut_segments();
    if (devices_.on_gpu() && sync_mode() == SyncMode::async) in_flight_limit_ = 1;
    if (devices_.on_gpu() && sync_mode() == SyncMode::bounded) in_flight_limit_ = bounded_steps;
    flop_per_token_ = model::training_flop_per_token(model, description_.batch.length);
}

// The flat gradients are cut at blocks, from the end, into buckets that are worth a message of their own. The first
// segment's bucket holds what comes behind the blocks too, the last one's what comes before them: a tied embedding is
// whole only when its backward is done.
void Trainer::cut_segments() {
    const Tensor gradients = parameters_->all_gradients();
    const auto& descriptions = parameters_->descriptions();
    std::vector<std::int64_t> block_offsets(stage_->blocks(), -1);
    for (std::size_t i = 0; i < descriptions.size(); ++i) {
        const std::string& name = descriptions[i].name;
        if (!name.starts_with("blocks/")) continue;
        auto& offset = block_offsets[static_cast<std::size_t>(std::stoll(name.substr(7)))];
        if (offset < 0) offset = parameters_->offset(i);
    }
    segments_.clear();
    std::size_t last_block = stage_->blocks();
    std::int64_t end = gradients.count();
    for (std::size_t block = stage_->blocks(); block-- > 0;) {
        const bool all = block == 0;
        const std::int64_t begin = all ? 0 : block_offsets[block];
        const bool whole =
            session_.size() > 1 && (end - begin) * std::int64_t{sizeof(float)} >= description_.parallel.bucket_bytes;
        if (!all && !whole) continue;
        Segment segment;
        segment.first_block = block;
        segment.last_block = last_block;
        segment.first = segments_.empty();
        segment.last = all;
        segment.bucket = gradients.slice(begin, end - begin);
        segments_.push_back(std::move(segment));
        last_block = block;
        end = begin;
    }
}

void Trainer::build() {
    const auto& model = description_.model;
    parameters_ = std::make_unique<model::ParameterSet>(devices_.backend->device(),
                                                        model::describe_parameters(model, model::whole_model(model)),
                                                        true, compute_type(description_.precision.compute));
    optimizer_ = std::make_unique<optim::AdamW>(*devices_.backend, *parameters_, description_.optimizer);
    writer_ = std::make_unique<checkpoint::Writer>(checkpoint_folder_, description_.checkpoint.keep,
                                                   session_.make_world_communicator());
    log::info("lockstep {} ({}), {}: {} rank{} x {} thread{} on {}", version(), commit(), devices_.name,
              session_.size(), session_.size() == 1 ? "" : "s", threads(), threads() == 1 ? "" : "s",
              session_.place().host);
    if (!devices_.why_no_gpu.empty()) log::info("no GPU is used: {}", devices_.why_no_gpu);
    if (session_.size() > 1) log::info("gradients travel by {}", devices_.carrier);
    if (sync_mode() != SyncMode::async) log::info("sync mode: {}", sync_mode_name(sync_mode()));
    log::info("model: {}{}, {} parameters, {:.3g} FLOP a token", model.preset.empty() ? "" : model.preset + ", ",
              model.mixer, with_commas(model::parameter_count(model)),
              model::training_flop_per_token(model, description_.batch.length));
}

std::vector<checkpoint::Entry> Trainer::entries() const {
    kernels::Backend& backend = *devices_.backend;
    std::vector<checkpoint::Entry> entries = parameter_entries(*parameters_, backend);
    const auto& descriptions = parameters_->descriptions();
    for (std::size_t i = 0; i < descriptions.size(); ++i)
        entries.push_back(
            entry_of("optimizer/first_moment/" + descriptions[i].name, optimizer_->first_moment(i), backend));
    for (std::size_t i = 0; i < descriptions.size(); ++i)
        entries.push_back(
            entry_of("optimizer/second_moment/" + descriptions[i].name, optimizer_->second_moment(i), backend));
    return entries;
}

void Trainer::restore(const std::string& path) {
    checkpoint::load(path, entries(), *control_communicator_);
    parameters_->refresh_working(*devices_.backend);
    optimizer_->set_updates(state_.optimizer_steps);
    saved_step_ = state_.step;
    log::info("resumed from {} at step {}", path, state_.step);
    cluster::on_root(*control_communicator_, [&] {
        for (const auto& moved : checkpoint::set_aside_later(checkpoint_folder_, state_.step))
            log::warning("a checkpoint later than step {} is set aside: {}", state_.step, moved);
    });
    if (session_.rank() != 0) return;  // warnings of other ranks are printed too
    const std::string processor = devices_.name;
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
    if (state_.data_checksum != training_data_->checksum() || state_.length != description_.batch.length ||
        state_.seed != description_.run.seed)
        log::warning(
            "the data, batch.length or run.seed is another than the checkpoint's: from here on the samples are others, "
            "and some may be seen again");
}

// The tensors of two models may agree in name and shape and still mean other things (heads, rotation, epsilon).
void Trainer::check_same_model(const std::string& stored_description) const {
    const config::RunDescription stored = config::parse_run_description(stored_description, resume_path_, {});
    config::RunDescription before = stored;
    // What changes no number: a preset's name, and the context where positions are not learned.
    before.model.preset = description_.model.preset;
    if (description_.model.position != "learned") before.model.context = description_.model.context;
    const std::vector<std::string> list = config::differences(description_, before, "model");
    if (!list.empty())
        throw usage_error("{} is a checkpoint of another model: {}; give the run description it was made with",
                          resume_path_, fmt::format("{}", fmt::join(list, "; ")));
}

void Trainer::say_differences(const std::string& stored_description) const {
    const config::RunDescription stored = config::parse_run_description(stored_description, resume_path_, {});
    std::vector<std::string> list;
    for (const char* section : {"batch", "optimizer", "schedule", "precision"})
        for (const auto& difference : config::differences(description_, stored, section))
            if (!difference.starts_with("batch.micro")) list.push_back(difference);
    if (!list.empty()) log::warning("changed since the checkpoint: {}", fmt::join(list, "; "));
}

void Trainer::say_memory_plan() const {
    const auto bytes = [](std::size_t value) { return human_bytes(static_cast<double>(value)); };
    const std::size_t parameters = parameters_->all_values().bytes();
    const std::string left =
        devices_.on_gpu() ? fmt::format(", {} of the GPU stay free", bytes(devices_.free_memory())) : "";
    log::info(
        "memory a rank: parameters {}, gradients {}, moments {}, activations {}, workspace {}{}, and {} of the host "
        "while "
        "a checkpoint is written; {} sequences of {} tokens at a time, {} micro-step{} a step",
        bytes(parameters_->bytes()), bytes(parameters), bytes(optimizer_->bytes()), bytes(stage_->activation_bytes()),
        bytes(stage_->workspace_bytes()), left,
        bytes((parameters + optimizer_->bytes()) / static_cast<std::size_t>(session_.size())), micro_,
        description_.batch.length, accumulation_, accumulation_ == 1 ? "" : "s");
}

}  // namespace lockstep::train
