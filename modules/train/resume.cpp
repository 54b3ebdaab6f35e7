#include "train/resume.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cluster/agree.hpp"
#include "device/parallel.hpp"
#include "model/frozen.hpp"
#include "optim/registry.hpp"
#include "train/checkpoint_contents.hpp"
#include "train/gradient_exchange.hpp"
#include "train/initial_model.hpp"
#include "train/launch.hpp"
#include "train/local_checkpoints.hpp"

namespace lockstep::train {
namespace {

// On rank 0.
std::string named_checkpoint(const Launch& launch) {
    const std::string& folder = launch.folders.checkpoint_path;
    const std::string& file = launch.options.resume_file;
    const std::string& name = launch.description.run.name;
    if (file.empty() && !checkpoint::list_checkpoints(folder).empty())
        throw usage_error(
            "the run {} has checkpoints in {}; continue it with --resume auto, or start another with a new run.name",
            name, folder);
    if (file.empty() && wrote_local_checkpoints(launch))
        throw usage_error(
            "the run {} was started before and may have local checkpoints; continue it with --resume auto, start "
            "another with a new run.name, or remove {} to start over",
            name, checkpoint::courses_path(folder));
    return file;
}

// On rank 0.
std::string newest_shared(const Launch& launch) {
    std::vector<std::string> skipped;
    const std::string newest = checkpoint::find_newest(launch.folders.checkpoint_path, skipped);
    for (const auto& why : skipped) log::warning("skipped: {}", why);
    return newest;
}

// Opens the newest local checkpoint of those with at least this step; what is damaged of them leaves `sets`.
std::optional<checkpoint::LocalCheckpoint> newest_local(const Launch& launch, std::vector<checkpoint::PartSet>& sets,
                                                        std::int64_t least) {
    while (!sets.empty() && sets.front().step >= least) {
        auto opened = checkpoint::open_local(local_place(launch), sets.front(), *launch.control);
        if (opened) return opened;
        sets.erase(sets.begin());
    }
    return std::nullopt;
}

// Collective. The newest whole checkpoint, local or shared. A local one is read by all nodes at once, a shared one by
// rank 0: of the same step it is the local one.
void choose_newest(const Launch& launch, Resume& resume) {
    const std::string& folder = launch.folders.checkpoint_path;
    resume.local_sets = find_local_checkpoints(launch);
    std::erase_if(resume.local_sets, [&](const auto& set) { return set.step >= launch.data.steps; });
    std::vector<std::string> shared;
    cluster::on_root(*launch.control, [&] { shared = checkpoint::list_checkpoints(folder); });
    const std::int64_t by_name =
        launch.control->all_maximum(shared.empty() ? -1 : checkpoint::step_of_file(shared.back()));
    resume.local = newest_local(launch, resume.local_sets, by_name);
    if (!resume.local) {
        cluster::on_root(*launch.control, [&] { resume.path = newest_shared(launch); });
        const std::int64_t whole = launch.control->all_maximum(checkpoint::step_of_file(resume.path));
        resume.local = newest_local(launch, resume.local_sets, whole + 1);  // beside later ones that are damaged
    }
    if (resume.local) resume.path = resume.local->path;
    cluster::on_root(*launch.control, [&] {
        if (launch.description.checkpoint.local.empty() && wrote_local_checkpoints(launch))
            log::warning("checkpoint.local is empty, but this run has written local checkpoints; set it to find them");
        if (!resume.path.empty()) return;
        if (!shared.empty())
            throw damaged_error(
                "all checkpoints in {} are damaged; move them away to start over, or name one with --resume FILE",
                folder);
        if (wrote_local_checkpoints(launch) && !launch.description.checkpoint.local.empty())
            log::warning("no complete local checkpoint of this run was found in {}",
                         config::local_folder(launch.description));
        log::info("nothing to resume in {}: starting fresh", folder);
    });
    resume.path = launch.control->broadcast_text(resume.path, 0);
}

// Converted files may have parameters alone.
void check_has_optimizer_state(const std::string& path, const config::RunDescription& description) {
    const optim::OptimizerType& optimizer = optim::optimizer_of(description.optimizer);
    const auto parameters = model::describe_parameters(description.model, model::whole_model(description.model));
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const auto& parameter) { return parameter.trained && !optimizer.states(parameter).empty(); }))
        return;
    const std::vector<checkpoint::TensorInfo> tensors = checkpoint::list_tensors(path);
    const auto belongs = [](const checkpoint::TensorInfo& tensor) { return tensor.path.starts_with("optimizer/"); };
    if (!tensors.empty() && std::none_of(tensors.begin(), tensors.end(), belongs))
        throw usage_error("{} has no optimizer state to resume with; start a run from its parameters: --init-from {}",
                          path, path);
}

void check_same_optimizer(const std::string& path, const std::string& before, const std::string& now) {
    if (before != now)
        throw usage_error(
            "{} is a checkpoint of the optimizer {}, whose state {} cannot use; set optimizer.kind = \"{}\", or start "
            "a new run from its parameters: --init-from {}",
            path, before, now, before, path);
}

void check_same_model(const Resume& resume, const config::RunDescription& description) {
    const std::vector<std::string> list = model_differences(description, resume.description);
    if (!list.empty())
        throw usage_error("{} is a checkpoint of another model: {}; use the run description it was made with",
                          resume.path, fmt::format("{}", fmt::join(list, "; ")));
}

void check_same_holding(const Resume& resume, const config::RunDescription& description) {
    const bool alone = !resume.state.base.empty();
    if (alone != description.checkpoint.adapters_alone)
        throw usage_error(
            "{} holds adapters {}; set checkpoint.adapters_alone = {}, or start a new run from its parameters: "
            "--init-from {}",
            resume.path, alone ? "alone" : "with their model", alone, resume.path);
}

void log_changed_keys(const Resume& resume, const config::RunDescription& resolved) {
    std::vector<std::string> list;
    for (const char* section : {"batch", "optimizer", "schedule", "precision"})  // parallel: see log_what_differs()
        for (const auto& difference : config::differences(resolved, resume.description, section))
            if (!difference.starts_with("batch.micro")) list.push_back(difference);
    for (const auto& difference : config::differences(resolved, resume.description, "data"))
        if (difference.starts_with("data.documents") || difference.starts_with("data.restart_positions"))
            list.push_back(difference);
    for (const auto& difference : config::differences(resolved, resume.description, "model"))
        if (difference.starts_with("model.adapters.dropout")) list.push_back(difference);
    if (!list.empty()) log::warning("changed since the checkpoint: {}", fmt::join(list, "; "));
}

// What is recomputed is what was computed, but on a GPU in 16 bits for GELU: a product's epilogue has more digits of
// its input than "cheap" finds in memory.
bool recomputes_otherwise(const Launch& launch) {
    const auto is_cheap = [](const config::RunDescription& description) {
        return description.parallel.recompute == config::Recompute::cheap;
    };
    return launch.devices.on_gpu() && launch.description.precision.compute != config::Precision::fp32 &&
           launch.description.model.mlp == config::MlpKind::gelu &&
           is_cheap(launch.description) != is_cheap(launch.resume.description);
}

// On rank 0 only, since all ranks' warnings are printed.
void log_what_differs(const Launch& launch, const checkpoint::State& saved) {
    std::vector<std::string> list;
    const auto compare = [&](const auto& then, const auto& now, const char* what) {
        if (then != now) list.push_back(fmt::format("{} {} (was {})", what, now, then));
    };
    // By the same lanes, any number of replicas adds up alike.
    const std::int64_t lanes = launch.description.parallel.lanes;
    const bool by_lanes = lanes > 0 && lanes == launch.resume.description.parallel.lanes;
    if (!by_lanes) compare(saved.ranks, static_cast<std::int64_t>(launch.session.size()), "ranks");
    compare(saved.threads, static_cast<std::int64_t>(threads()), "threads per rank");
    compare(saved.processor, launch.computes_on(), "processor");
    compare(saved.commit, std::string(commit()), "commit");
    compare(launch.resume.description.batch.micro, launch.plan.micro, "sequences per micro-batch");
    const bool other_bits = recomputes_otherwise(launch);
    for (const auto& difference : config::differences(launch.resolved(), launch.resume.description, "parallel"))
        if (!difference.starts_with("parallel.data") &&  // implied by ranks and the other axes
            (other_bits || !difference.starts_with("parallel.recompute")) &&
            (launch.devices.on_gpu() || !difference.starts_with("parallel.offload")) &&
            !(by_lanes && (difference.starts_with("parallel.zero") || difference.starts_with("parallel.bucket_bytes"))))
            list.push_back(difference);
    if (launch.devices.on_gpu())
        compare(launch.resume.description.run.tune_products, launch.description.run.tune_products, "run.tune_products");
    if (!list.empty())
        log::warning("this resume will not be bit-identical to an uninterrupted run: {}", fmt::join(list, ", "));
    if (saved.data_checksum != launch.data.training->checksum() || saved.length != launch.description.batch.length ||
        saved.seed != launch.description.run.seed)
        log::warning(
            "the training data, data.documents, batch.length or run.seed differs from the checkpoint's: the sample "
            "order changes from this step on, and some samples may be seen twice");
}

// Averages that the run does not keep are skipped, and those that the checkpoint lacks begin at the parameters: see
// lacks_average().
void match_averages(const Launch& launch, std::vector<checkpoint::Entry>& entries) {
    const bool now = launch.description.optimizer.averages(), then = launch.resume.description.optimizer.averages();
    if (now == then) return;
    if (now)
        std::erase_if(entries, [](const checkpoint::Entry& entry) {
            return entry.path.starts_with(checkpoint::averages_prefix);
        });
    else
        for (const auto& parameter : model::describe_parameters(launch.resume.description.model,
                                                                model::whole_model(launch.resume.description.model)))
            if (parameter.trained)
                entries.push_back(checkpoint::skipped(checkpoint::averages_prefix + parameter.name, parameter.shape));
}

bool lacks_average(const Launch& launch, const model::ParameterDescription& parameter) {
    return !launch.resume.description.optimizer.averages() ||
           model::is_frozen(launch.resume.description.model, parameter.name);
}

// Optimizer state of parameters that are frozen now is skipped; newly trained parameters have none saved and start at
// zero.
std::vector<checkpoint::Entry> entries_to_load(const Launch& launch, const TrainingState& state) {
    std::vector<checkpoint::Entry> entries = checkpoint_entries(state, launch.devices);
    match_averages(launch, entries);
    const bool averages = launch.description.optimizer.averages() && launch.resume.description.optimizer.averages();
    const auto& model = launch.description.model;
    const auto& saved = launch.resume.description.model;
    if (saved.frozen == model.frozen) return entries;
    std::int64_t dropped = 0, begun = 0;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        const bool was_trained = !model::is_frozen(saved, parameter.name);
        if (was_trained == parameter.trained) continue;
        (was_trained ? dropped : begun) += element_count(parameter.shape);
        for (const auto& description : optim::states_of(state.optimizer->type(), averages, parameter)) {
            const std::string path = "optimizer/" + description.name + "/" + parameter.name;
            if (was_trained)
                entries.push_back(checkpoint::skipped(path, description.shape));
            else
                std::erase_if(entries, [&](const checkpoint::Entry& entry) { return entry.path == path; });
        }
    }
    if (launch.root())
        log::warning(
            "model.frozen differs from the checkpoint's: {} parameter{} newly frozen, and their optimizer "
            "state is dropped; {} {} newly trained, and their optimizer state starts at zero",
            with_commas(dropped), dropped == 1 ? " is" : "s are", with_commas(begun), begun == 1 ? "is" : "are");
    return entries;
}

// Of launches that were killed before they could. Only once this one is accepted.
void remove_leftovers(const Launch& launch, std::int64_t step) {
    try {
        for (const auto& path :
             checkpoint::remove_leftovers(launch.folders.checkpoint_path, step, launch.description.checkpoint.keep))
            log::info("removed {}, which an earlier launch left behind", path);
    } catch (const Error& error) {
        log::warning("{}", error.what());
    }
}

// Parts were read once when they were chosen. Where a disk fails only now, there may be copies.
void load_local(const Launch& launch, std::optional<checkpoint::LocalCheckpoint>& local,
                const std::vector<checkpoint::Entry>& entries) {
    const checkpoint::LocalPlace place = local_place(launch);
    try {
        checkpoint::load_local(place, *local, entries, *launch.control);
    } catch (const Error& error) {  // the same on every rank
        if (launch.root()) log::warning("{}; reading all parts again", error.what());
        local = checkpoint::open_local(place, local->set, *launch.control);
        if (!local) throw;
        checkpoint::load_local(place, *local, entries, *launch.control);
    }
}

// The base parameters of adapters-only checkpoints; takes their entries.
void load_base(const Launch& launch, std::vector<checkpoint::Entry>& entries, checkpoint::State& saved) {
    const auto base = exchange::open_base(launch.resume.path, saved, base_given(launch), *launch.control);
    base->load_as_base(exchange::take_base_entries(entries), *launch.control);
    name_base(*base, *launch.control, saved);
}

}  // namespace

std::vector<std::string> model_differences(const config::RunDescription& now, config::RunDescription before) {
    // These do not change what the parameters mean: the preset's name, what is trained, its dropout, and the context
    // unless positions are learned.
    before.model.preset = now.model.preset;
    before.model.frozen = now.model.frozen;
    before.model.adapters.dropout = now.model.adapters.dropout;
    if (now.model.position != config::Position::learned) before.model.context = now.model.context;
    return config::differences(now, before, "model");
}

void check_resume_file(const Launch& launch) {
    const std::string& file = launch.options.resume_file;
    if (file.empty()) return;
    cluster::on_root(*launch.control, [&] {
        std::error_code problem;
        if (std::filesystem::exists(file, problem)) return;
        if (problem) throw usage_error("--resume {}: it cannot be read: {}", file, problem.message());
        throw usage_error("--resume {}: there is no such file{}", file,
                          nearest_name(file, {"auto"}).empty() ? "" : " (did you mean auto?)");
    });
}

Resume choose_checkpoint(const Launch& launch) {
    Resume resume;
    if (launch.options.resume_newest) {
        choose_newest(launch, resume);
    } else {
        cluster::on_root(*launch.control, [&] { resume.path = named_checkpoint(launch); });
        resume.path = launch.control->broadcast_text(resume.path, 0);
        if (!resume.path.empty()) resume.local_sets = find_local_checkpoints(launch);  // older ones stay
    }
    if (resume.path.empty()) return resume;
    cluster::on_root(*launch.control, [&] {
        if (!resume.local) check_has_optimizer_state(resume.path, launch.description);
    });
    cluster::together(*launch.control, [&] {
        std::string run_description;
        if (resume.local) {
            resume.state = resume.local->state;
            run_description = resume.local->run_description;
        } else {
            checkpoint::Contents contents = checkpoint::read_contents(resume.path);
            resume.state = contents.state;
            run_description = std::move(contents.run_description);
        }
        check_same_optimizer(resume.path, resume.state.optimizer,
                             optim::optimizer_of(launch.description.optimizer).name());
        resume.description = config::parse_run_description(run_description, resume.path, {});
        check_same_model(resume, launch.description);
        check_same_holding(resume, launch.description);
        if (launch.root()) log_changed_keys(resume, launch.resolved());
    });
    // Of a whole checkpoint init.base may be that of init.from, which is no longer needed.
    if (!resume.state.base.empty())
        exchange::check_base(resume.path, resume.state, base_given(launch), *launch.control);
    resume.complete = resume.state.step >= launch.data.steps;
    if (resume.complete && !launch.options.resume_newest)
        throw usage_error(
            "{} is at step {}, and the schedule ends at step {}: nothing left to train; raise schedule.steps",
            resume.path, resume.state.step, launch.data.steps);
    if (launch.root() && launch.options.resume_newest) remove_leftovers(launch, resume.state.step);
    return resume;
}

void restore(const Launch& launch, TrainingState& state) {
    checkpoint::State saved = launch.resume.state;
    std::optional<checkpoint::LocalCheckpoint> local = launch.resume.local;
    std::vector<checkpoint::Entry> entries = entries_to_load(launch, state);
    if (launch.description.checkpoint.adapters_alone) load_base(launch, entries, saved);
    if (local)
        load_local(launch, local, entries);
    else
        checkpoint::load(launch.resume.path, entries, *launch.control);
    state.parameters->refresh_working(*launch.devices.backend);
    state.optimizer->begin_averages([&](const auto& parameter) { return lacks_average(launch, parameter); });
    gather_parameters(state, launch.groups);
    optim::Progress progress{saved.optimizer_steps, 1, 0, 0};
    if (launch.description.precision.compute == config::Precision::fp16) {
        const bool was = launch.resume.description.precision.compute == config::Precision::fp16;
        progress.loss_scale = was ? saved.loss_scale : launch.description.precision.loss_scale.initial;
        progress.good_steps = was ? saved.good_steps : 0;
        progress.bad_steps = was ? saved.bad_steps : 0;
    }
    state.optimizer->set_progress(progress);
    state.counters = saved;
    if (local)
        log::info("resumed from local parts of step {} ({} from own nodes, {} partner cop{})", saved.step, local->own(),
                  local->copies(), local->copies() == 1 ? "y" : "ies");
    else
        log::info("resumed from {} at step {}", launch.resume.path, saved.step);
    if (launch.root()) log_what_differs(launch, saved);
}

void set_aside_later(const Launch& launch) {
    if (launch.resume.path.empty()) return;
    const std::int64_t step = launch.resume.state.step;
    cluster::on_root(*launch.control, [&] {
        for (const auto& moved : checkpoint::set_aside_later(launch.folders.checkpoint_path, step))
            log::warning("a checkpoint later than step {} was set aside: {}", step, moved);
    });
}

}  // namespace lockstep::train
