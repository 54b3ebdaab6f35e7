// Everything before the first step.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "calibrate/peak.hpp"
#include "cluster/agree.hpp"
#include "cluster/flight_recorder.hpp"
#include "device/available_memory.hpp"
#include "device/parallel.hpp"
#include "device/sync.hpp"
#include "layout/batch_plan.hpp"
#include "layout/run_layout.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"
#include "optim/schedule.hpp"
#include "train/trainer.hpp"
#include "watch/stop_request.hpp"
#include "watch/watch_folder.hpp"
#include "watch/witness.hpp"

namespace lockstep::train {
namespace {

// Steps between two comparisons of the ranks: all are timed phase by phase, or one in a hundred.
constexpr std::int64_t timed_steps = 20, few_timed_steps = 4;

}  // namespace

Trainer::Trainer(cluster::Session& session, config::RunDescription description, TrainOptions options)
    : session_(session), description_(std::move(description)), options_(std::move(options)), started_(seconds_now()) {
    control_group_ = session.make_world_group("control");
    set_sync_mode(description_.sync.mode);
    devices_ = layout::open_devices(description_.run.device, session, description_.run.bind);
    choose_precision();
    run_path_ = description_.run.folder + "/" + description_.run.name;
    checkpoint_folder_ = description_.checkpoint.folder + "/" + description_.run.name;

    lay_out();
    cluster::together(*control_group_, [&] { open_data(); });
    check_same_data();
    cluster::on_root(*control_group_, [&] {
        folder_ = std::make_unique<watch::RunFolder>(run_path_);
        checkpoint_lock_ = std::make_unique<watch::RunLock>(checkpoint_folder_, ".lock");
    });
    decide_resume();
    if (already_finished_) return;
    if (folder_) log::add_file(run_path_ + "/log.txt");
    watch::watch_signals();
    start_watching();
    if (description_.run.self_test)
        folder_test_ = calibrate::test_checkpoint_folder(checkpoint_folder_, session_, *control_group_);
    build();
    if (!resume_path_.empty()) {
        restore(resume_path_);
    } else {
        parameters_->initialize(*devices_.backend, description_.run.seed);
        share_parameters();
    }
    // Only now: a launch that could not resume leaves what is said of the run as it was.
    if (folder_) {
        folder_->write_description(config::to_toml(description_));
        folder_->remove_stop_file();
        watch::RunFolder::write_status(run_path_, "running", state_.step, 0, "");
    }
    session_.set_last_words([say = last_words_](ExitCode code, const std::string& sentence) {
        static_cast<void>(say("failed", code, sentence));
    });
    try {
        start_trace();
    } catch (const Error& error) {
        if (folder_)
            watch::RunFolder::write_status(run_path_, "failed", state_.step, static_cast<int>(error.code()),
                                           error.what());
        throw;
    }
}

// CPUs compute in fp32, and in bf16 where all ranks' processors have instructions for it.
void Trainer::choose_precision() {
    if (devices_.on_gpu()) return;
    config::Precision& compute = description_.precision.compute;
    if (compute == config::Precision::fp16)
        throw usage_error(
            "precision.compute = \"fp16\": CPUs compute in fp32 or bf16; set it to one of these, or run on GPUs");
    if (compute != config::Precision::bf16 ||
        control_group_->all_maximum(kernels::cpu_multiplies_bf16() ? 0 : 1) == 0)
        return;
    compute = config::Precision::fp32;
    if (session_.rank() == 0)
        log::warning(
            "precision.compute = \"bf16\": not every rank's processor has instructions for bf16 (AVX512-BF16 or "
            "AMX), or the environment forbids them (ONEDNN_MAX_CPU_ISA, LOCKSTEP_CPU_BF16); this launch computes in "
            "fp32");
}

// However this launch ends, status.json and log.txt say so, also when a rank other than 0 fails alone and rank 0 can
// say nothing any more.
void Trainer::leave_last_words() {
    *current_step_ = state_.step;
    // They are spoken after this trainer is gone, so they hold what they need.
    const bool logs_already = folder_ != nullptr;
    last_words_ = [path = run_path_, key = node_folder_->key(), step = current_step_, logs_already](
                      const std::string& state, ExitCode code, const std::string& sentence) {
        if (!watch::take_last_word(path, key)) return false;
        watch::RunFolder::write_status(path, state, *step, static_cast<int>(code), sentence);
        try {
            if (!logs_already) log::add_file(path + "/log.txt");
        } catch (const Error& error) {
            log::debug("{}", error.what());
        }
        return true;
    };
}

void Trainer::start_watching() {
    const auto& place = session_.place();
    cluster::flight_recorder().set_step(state_.step);
    node_folder_ = std::make_unique<watch::NodeFolder>(*control_group_, place);
    leave_last_words();
    watch::WatchOptions options;
    options.seconds = description_.watchdog.seconds;
    options.first_step_seconds = description_.watchdog.first_step_seconds;
    options.run_path = run_path_;
    options.node_folder = node_folder_->path();
    options.key = node_folder_->key();
    options.rank = session_.rank();
    options.ranks = session_.size();
    options.node = place.node;
    if (folder_) watch::make_watch_folder(run_path_, options.key);
    control_group_->barrier();  // all ranks of the node are in its folder
    options.last_words = last_words_;
    // The first in the folder, which in containers may be each rank in its own.
    const auto members = watch::node_members(options.node_folder);
    const bool first = !members.empty() && members.front().rank == session_.rank();
    if (first && !options_.witness_program.empty())
        watch::start_witness(options_.witness_program, options.node_folder, run_path_, options.key);
    watchdog_ = std::make_unique<watch::Watchdog>(std::move(options));
}

void Trainer::open_data() {
    const auto& data = description_.data;
    data::DatasetOptions options;
    options.paths = data.train;
    options.tokenizer = data.tokenizer;
    options.length = description_.batch.length;
    options.seed = description_.run.seed;
    options.random = data.order == config::DataOrder::random;
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
        steps_ = std::max<std::int64_t>(
            1, layout::steps_for(description_.batch, schedule.epochs * static_cast<double>(training_data_->windows())));
    if (schedule.warmup > steps_)
        throw usage_error("schedule.warmup = {} is longer than the {} steps of the run", schedule.warmup, steps_);
    std::int64_t samples = 0;
    if (description_.batch.ramp)
        for (std::int64_t step = 0; step < steps_; ++step) samples += layout::batch_after(description_.batch, samples);
    else
        samples = steps_ * description_.batch.global;
    log::info("training data: {} tokens, {} windows of {}; {} steps of {}{} sequences are {:.2f} epochs",
              with_commas(training_data_->tokens()), with_commas(training_data_->windows()), description_.batch.length,
              with_commas(steps_), description_.batch.ramp ? "up to " : "", description_.batch.global,
              static_cast<double>(samples) / static_cast<double>(training_data_->windows()));
}

// Every rank must see the same tokens: a path may name different files on different nodes.
void Trainer::check_same_data() const {
    const auto checksum = static_cast<std::int64_t>(training_data_->checksum());
    const std::int64_t validation = validation_data_ ? validation_data_->windows() : 0;
    std::vector<std::int64_t> least = {checksum, training_data_->windows(), validation}, most = least;
    control_group_->all_reduce(least, cluster::Reduce::minimum);
    control_group_->all_reduce(most, cluster::Reduce::maximum);
    if (least != most)
        throw usage_error(
            "the ranks see different data under the same names ([data] train or validation); put the files where every "
            "node sees the same ones");
}

void Trainer::start_trace() {
    const auto& place = session_.place();
    trace::TracerOptions options;
    options.detail = description_.trace.detail;
    options.folder = run_path_;
    options.run_name = description_.run.name;
    options.description = config::to_toml(resolved());
    options.steps_left = steps_ - state_.step;
    options.rank.host = place.host;
    const cluster::RankSeat& seat = devices_.placement.seat();
    options.rank.cores = seat.cores.text();
    options.rank.threads = threads();
    if (!seat.numa_nodes.empty()) options.rank.numa_node = seat.numa_nodes.front();
    if (devices_.on_gpu()) options.rank.gpu = devices_.name + " " + seat.gpu;
    options.rank.network = fmt::format("{}", fmt::join(seat.network, ", "));
    options.rank.data = groups_.place.data;
    options.rank.tensor = groups_.place.tensor;
    options.rank.pipeline = groups_.place.pipeline;
    options.rank.context = groups_.place.context;
    tracer_ = std::make_unique<trace::Tracer>(std::move(options), session_.make_world_group("trace"));
    regions_.initialization = tracer_->region("initialization");
    regions_.epoch = tracer_->region("epoch");
    regions_.step = tracer_->region("epoch/step", trace::Detail::step);
    pass_regions_.data_loading = tracer_->region("epoch/step/data_loading");
    pass_regions_.data_movement = tracer_->region("epoch/step/data_movement");
    pass_regions_.forward = tracer_->region("epoch/step/forward");
    pass_regions_.loss = tracer_->region("epoch/step/loss");
    pass_regions_.backward = tracer_->region("epoch/step/backward");
    regions_.communication = tracer_->region("epoch/step/communication");
    regions_.communication_tensor = tracer_->region("epoch/step/communication/tensor");
    pass_regions_.transfer = tracer_->region("epoch/step/communication/pipeline");
    regions_.communication_context = tracer_->region("epoch/step/communication/context");
    regions_.communication_data = tracer_->region("epoch/step/communication/data");
    regions_.communication_control = tracer_->region("epoch/step/communication/control");
    regions_.optimizer = tracer_->region("epoch/step/optimizer");
    regions_.validation = tracer_->region("validation");
    regions_.checkpoint = tracer_->region("checkpoint");
    // Stages have other blocks, and all ranks the same regions.
    for (const char* direction : {"forward", "backward"})
        for (std::int64_t block = 0; block < description_.model.layers; ++block)
            static_cast<void>(
                tracer_->region(fmt::format("epoch/step/{}/block_{}", direction, block), trace::Detail::layer));
    tracer_->begin(regions_.initialization);

    // Before the activations, so that what it needs of a GPU's memory is free.
    double product_flops = 0;
    if (description_.run.self_test)
        product_flops =
            calibrate::run_self_test({session_, *control_group_, devices_, grid_, groups_,
                                      layout::compute_type(description_.precision.compute), run_path_, folder_test_});
    make_pipeline();
    check_memory_plan();
    say_memory_plan();
    say_rates(product_flops);
    if (folder_) folder_->open_metrics(state_.step);
    progress_ = std::make_unique<Progress>(state_.step);
    // Ranks that share a core take turns.
    const bool share = control_group_->all_maximum(devices_.placement.seat().shares_cores ? 1 : 0) != 0;
    if (session_.size() > 1 && regions_.communication >= 0 && !share)
        slow_ranks_.emplace(*control_group_, groups_.place.pipeline, place.host,
                            devices_.on_gpu() && sync_mode() != SyncMode::phase ? few_timed_steps : timed_steps);
    tracer_->end(regions_.initialization);
}

// What each rank does: its place in the grid, its pieces of the model, its share of a batch.
void Trainer::lay_out() {
    model::check_frozen(description_.model);
    grid_ = layout::choose_grid(description_, session_.size());
    groups_ = cluster::make_groups(*devices_.communicators, session_.rank(), grid_);
    const layout::BatchShare batch = layout::share_of_batch(description_, grid_, devices_.backend->device().kind);
    if (batch.fewest_micro_batches < grid_.pipeline && session_.rank() == 0)
        log::warning(
            "{} micro-batch{} a step cannot fill a pipeline of {} stages; lower batch.micro = {} or raise batch.global",
            batch.fewest_micro_batches, batch.fewest_micro_batches == 1 ? "" : "es", grid_.pipeline, batch.micro);
    plan_ = layout::plan_memory(description_, grid_, groups_.place, devices_.backend->device().kind);
    check_room();
    if (grid_.tensor <= session_.place().local_ranks || session_.rank() != 0) return;
    log::warning(
        "parallel.tensor = {} is more than the {} ranks of a node: what the ranks of a layer tell each other crosses "
        "the "
        "network, many times a step",
        grid_.tensor, session_.place().local_ranks);
}

// Before anything is allocated: all that the ranks of a device plan, against what it has left. On a CPU that is the
// node's memory.
void Trainer::check_room() const {
    struct Need {
        std::uint64_t device, planned, left;
    };
    const auto& place = session_.place();
    const std::string device = fmt::format("{} {}", place.node, devices_.on_gpu() ? devices_.placement.seat().gpu : "");
    const Need own{hash64(device.data(), device.size()), plan_.planned() + plan_.tables,
                   devices_.on_gpu() ? devices_.free_memory() : available_memory()};
    const std::vector<char> bytes = control_group_->all_gather_bytes(&own, sizeof own);
    std::vector<Need> all(static_cast<std::size_t>(session_.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    cluster::together(*control_group_, [&] {
        std::uint64_t planned = 0, left = own.left;
        int ranks = 0;
        for (const Need& one : all) {
            if (one.device != own.device) continue;
            planned += one.planned;
            left = std::min(left, one.left);
            ++ranks;
        }
        if (planned <= left) return;
        throw usage_error("no room: {} rank{} on {} of {} would take {}, and {} are free there; rank {}: {}; {}", ranks,
                          ranks == 1 ? "" : "s",
                          devices_.on_gpu() ? "GPU " + devices_.placement.seat().gpu : "the memory", place.host,
                          human_bytes(static_cast<double>(planned)), human_bytes(static_cast<double>(left)),
                          session_.rank(), layout::memory_text(plan_), layout::what_to_change(plan_, description_));
    });
}

void Trainer::build() {
    const auto& model = description_.model;
    kernels::Backend& backend = *devices_.backend;
    const model::Part part{groups_.place.tensor, grid_.tensor};
    const model::ParameterLayout layout(model::describe_parameters(model, plan_.chunks), part);
    gradient_plan_ = layout::plan_gradients(description_, grid_, groups_.place, layout, plan_.chunks);
    const int replica = groups_.place.replica(grid_);
    parameters_ = std::make_unique<model::ParameterSet>(
        backend.device(), layout, true, layout::compute_type(description_.precision.compute),
        divides_optimizer() ? gradient_plan_.owned(replica) : std::vector<model::Piece>{});

    // A tied table lies on two stages, and is counted on the first.
    const bool last = groups_.place.pipeline + 1 == grid_.pipeline;
    optim::NormPlan norm;
    norm.counted = optim::counted_pieces(*parameters_, part, gradient_plan_.tied && last);
    norm.communicator = divides_optimizer() ? devices_.communicator.get() : groups_.model.get();
    if (!divides_optimizer()) norm.replicas = groups_.replicas.get();
    kernels::LossScaling scaling;
    const config::LossScale& scale = description_.precision.loss_scale;
    const bool scaled = description_.precision.compute == config::Precision::fp16;
    if (scaled) scaling = {scale.growth_interval, scale.hysteresis, scale.minimum};
    optimizer_ = std::make_unique<optim::AdamW>(backend, *parameters_, description_.optimizer, norm, scaling);
    optimizer_->set_progress({0, scaled ? scale.initial : 1, 0, 0});
    const bool counts = divides_optimizer() || replica == 0;
    padding_ = std::llround(control_group_->all_sum(counts ? static_cast<double>(optimizer_->padding()) : 0));

    writer_ = std::make_unique<checkpoint::Writer>(checkpoint_folder_, description_.checkpoint.keep,
                                                   session_.make_world_group("checkpoint"));
    log::info("lockstep {} ({}), {}: {} rank{} x {} thread{} on {}, computing in {}", version(), commit(),
              devices_.name, session_.size(), session_.size() == 1 ? "" : "s", threads(), threads() == 1 ? "" : "s",
              session_.place().host, config::word_of(description_.precision.compute));
    if (!devices_.why_no_gpu.empty()) log::info("no GPU is used: {}", devices_.why_no_gpu);
    cluster::say_placement(devices_.placement, session_, *control_group_);
    if (session_.size() > 1)
        log::info("grid: data {} x tensor {} x pipeline {} x context {}; what ranks tell each other travels by {}",
                  grid_.data, grid_.tensor, grid_.pipeline, grid_.context, devices_.carrier);
    if (sync_mode() != SyncMode::async) log::info("sync mode: {}", config::word_of(sync_mode()));
    log::info("model: {}{}, {} parameters, {:.3g} FLOP a token", model.preset.empty() ? "" : model.preset + ", ",
              model.mixer, with_commas(model::parameter_count(model)),
              model::training_flop_per_token(model, description_.batch.length));
    if (!model.frozen.empty())
        log::info(
            "{} of {} parameters are trained; the others are frozen, and kept in {} where only matrix products and "
            "lookups use them",
            with_commas(model::trained_parameter_count(model)), with_commas(model::parameter_count(model)),
            config::word_of(description_.precision.compute));
}

void Trainer::make_pipeline() {
    kernels::Backend& backend = *devices_.backend;
    tensor_group_ = model::TensorGroup(*groups_.tensor, description_.parallel.sequence, tracer_.get(),
                                       regions_.communication_tensor);
    context_chain_ = model::ContextChain(*groups_.context, tracer_.get(), regions_.communication_context);
    PipelineOptions options;
    options.chunks = plan_.chunks;
    options.stages = grid_.pipeline;
    options.micro = plan_.micro;
    options.length = description_.batch.length;
    options.most_micro_batches = plan_.micro_batches;
    options.recompute = description_.parallel.recompute;
    options.neighbours = &neighbours_;
    options.loss_scale =
        description_.precision.compute == config::Precision::fp16 ? optimizer_->loss_scale() : Tensor();
    options.tracer = tracer_.get();
    pipeline_ = std::make_unique<Pipeline>(devices_, groups_, *parameters_, description_.model, gradient_plan_, options,
                                           pass_regions_);
    scalars_memory_ = Arena(backend.device(), 2 * Arena::device_alignment, "the step's scalars");
    losses_ = scalars_memory_.allocate(Type::fp64, {2});
    validation_loss_ = scalars_memory_.allocate(Type::fp64, {1});
    if (devices_.on_gpu() && sync_mode() == SyncMode::async) in_flight_limit_ = 1;
    if (devices_.on_gpu() && sync_mode() == SyncMode::bounded) in_flight_limit_ = bounded_steps;
}

// The plan is made by the code that allocates.
void Trainer::check_memory_plan() const {
    LOCKSTEP_ASSERT(plan_.parameters == parameters_->value_bytes());
    LOCKSTEP_ASSERT(plan_.gradients == parameters_->gradient_bytes());
    LOCKSTEP_ASSERT(plan_.moments == optimizer_->bytes());
    LOCKSTEP_ASSERT(plan_.activations == pipeline_->activation_bytes());
    LOCKSTEP_ASSERT(plan_.workspace == pipeline_->workspace_bytes());
}

// One line for every stage of the pipeline: the others of a stage differ little.
void Trainer::say_memory_plan() const {
    const auto bytes = [](std::size_t value) { return human_bytes(static_cast<double>(value)); };
    const std::string left =
        devices_.on_gpu() ? fmt::format("; {} of the GPU stay free", bytes(devices_.free_memory())) : "";
    const std::string own = layout::memory_text(plan_) + left;
    constexpr std::size_t width = 512;
    std::vector<char> line(width);
    std::copy_n(own.data(), std::min(own.size(), width - 1), line.data());
    const std::vector<char> all = control_group_->gather(line.data(), width, 0);
    if (session_.rank() != 0) return;
    for (int stage = 0; stage < grid_.pipeline; ++stage) {
        cluster::GridPlace place;
        place.pipeline = stage;
        const auto rank = static_cast<std::size_t>(cluster::grid_rank(place, grid_));
        const std::string where = grid_.pipeline > 1 ? fmt::format(", stage {} of {}", stage + 1, grid_.pipeline) : "";
        log::info("memory a rank{}: {}", where, std::string(all.data() + rank * width));
    }
    log::info(
        "{} of the host more while a checkpoint is written; {} sequence{} of {} tokens at a time, {} micro-batch{} a "
        "step",
        bytes(plan_.checkpoint), plan_.micro, plan_.micro == 1 ? "" : "s", description_.batch.length,
        plan_.micro_batches, plan_.micro_batches == 1 ? "" : "es");
    if (!description_.batch.ramp) return;
    log::info("batch ramp: {} sequences at first, {} more each time, {} after {} samples",
              description_.batch.ramp->start, description_.batch.ramp->increment, description_.batch.global,
              with_commas(description_.batch.ramp->samples));
}

// What the rates in the log mean.
void Trainer::say_rates(double product_flops) {
    const auto& model = description_.model;
    const std::int64_t length = description_.batch.length;
    model_flop_per_token_ = model::training_flop_per_token(model, length);
    hardware_flop_per_token_ = model_flop_per_token_;
    if (description_.parallel.recompute == config::Recompute::full)
        hardware_flop_per_token_ += model::recomputed_flop_per_token(model, length);
    const calibrate::Peak peak = calibrate::find_peak(devices_, layout::compute_type(description_.precision.compute),
                                                      description_.run.peak_tflops, product_flops);
    peak_flops_ = peak.flops;
    log::info(
        "model TFLOP/s: {}, per rank; hardware TFLOP/s: with what is made again; MFU: model TFLOP/s of {:.3g} TFLOP/s, "
        "{}",
        model.frozen.empty()
            ? "three times the forward pass's matrix products and mixing"
            : "the matrix products and mixing of the forward pass and of what is passed backward to train",
        peak.flops * 1e-12, peak.origin);
}

}  // namespace lockstep::train
