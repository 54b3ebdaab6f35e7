// How a run goes on from a checkpoint, and what a checkpoint holds of a run.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "cluster/agree.hpp"
#include "device/parallel.hpp"
#include "model/frozen.hpp"
#include "train/trainer.hpp"

namespace lockstep::train {

void Trainer::decide_resume() {
    cluster::on_root(*control_group_, [&] {
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
    resume_path_ = control_group_->broadcast_text(resume_path_, 0);
    if (resume_path_.empty()) return;
    cluster::together(*control_group_, [&] {
        const checkpoint::Contents contents = checkpoint::read_contents(resume_path_);
        state_ = contents.state;
        stored_ = config::parse_run_description(contents.run_description, resume_path_, {});
        check_same_model();
        if (session_.rank() == 0) say_differences();
    });
    if (state_.step >= steps_ && options_.resume != "auto")
        throw usage_error(
            "{} is of step {}, and the schedule ends at step {}: nothing is left to train; raise schedule.steps",
            resume_path_, state_.step, steps_);
    already_finished_ = state_.step >= steps_;
}

// What this rank holds of one tensor of the file: the pieces of its slice.
std::vector<checkpoint::Entry> Trainer::entries() const {
    kernels::Backend* device = devices_.on_gpu() ? devices_.backend.get() : nullptr;
    const model::ParameterLayout& layout = parameters_->layout();
    std::vector<checkpoint::Entry> entries;
    const auto add = [&](const std::string& group, std::size_t index, std::int64_t first, Tensor value) {
        const model::Slice& slice = layout.slice(index);
        checkpoint::Entry entry;
        entry.path = group + layout.descriptions()[index].name;
        entry.shape = layout.descriptions()[index].shape;
        entry.axis = slice.axis;
        entry.offset = slice.offset;
        entry.extent = slice.extent;
        entry.first = first;
        entry.value = value;
        entry.device = device;
        entries.push_back(std::move(entry));
    };
    // The elements of each parameter in what this rank owns, of a flat tensor for each piece.
    const auto add_owned = [&](const std::string& group, const std::function<Tensor(std::size_t)>& of_piece) {
        for (std::size_t index = 0; index < layout.size(); ++index) {
            const std::int64_t begin = layout.offset(index), end = begin + layout.count(index);
            for (std::size_t piece = 0; piece < parameters_->owned().size(); ++piece) {
                const model::Piece& owned = parameters_->owned()[piece];
                const std::int64_t first = std::max(begin, owned.first),
                                   last = std::min(end, owned.first + owned.count);
                if (first < last)
                    add(group, index, first - begin, of_piece(piece).slice(first - owned.first, last - first));
            }
        }
    };
    const Tensor values = parameters_->all_values();
    if (values.empty()) add_owned("parameters/", [&](std::size_t piece) { return parameters_->owned_value(piece); });
    for (std::size_t index = 0; index < layout.size(); ++index) {
        if (layout.count(index) == 0) continue;
        if (!layout.descriptions()[index].trained)
            add("parameters/", index, 0, parameters_->frozen_value(index));
        else if (!values.empty())
            add("parameters/", index, 0, parameters_->part(values, index));
    }
    add_owned("optimizer/first_moment/", [&](std::size_t piece) { return optimizer_->first_moment(piece); });
    add_owned("optimizer/second_moment/", [&](std::size_t piece) { return optimizer_->second_moment(piece); });
    return entries;
}

config::RunDescription Trainer::resolved() const {
    config::RunDescription resolved = description_;
    resolved.batch.micro = plan_.micro;
    resolved.parallel.data = grid_.data;
    return resolved;
}

// The moments of what was trained and is frozen now are passed over; what was frozen has none and starts with zeros.
std::vector<checkpoint::Entry> Trainer::entries_of_checkpoint() const {
    std::vector<checkpoint::Entry> entries = this->entries();
    const auto& model = description_.model;
    if (stored_.model.frozen == model.frozen) return entries;
    std::int64_t dropped = 0, begun = 0;
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        const bool was_trained = !model::is_frozen(stored_.model, parameter.name);
        if (was_trained == parameter.trained) continue;
        (was_trained ? dropped : begun) += element_count(parameter.shape);
        for (const char* group : {"optimizer/first_moment/", "optimizer/second_moment/"}) {
            const std::string path = group + parameter.name;
            if (was_trained)
                entries.push_back({path, parameter.shape, 0, 0, parameter.shape[0], 0, {}, nullptr});
            else
                std::erase_if(entries, [&](const checkpoint::Entry& entry) { return entry.path == path; });
        }
    }
    if (session_.rank() == 0)
        log::warning(
            "model.frozen is not the checkpoint's: {} parameters are newly frozen, and their moments are dropped; {} "
            "are "
            "newly trained, and their moments begin with zeros",
            with_commas(dropped), with_commas(begun));
    return entries;
}

void Trainer::restore(const std::string& path) {
    checkpoint::load(path, entries_of_checkpoint(), *control_group_);
    parameters_->refresh_working(*devices_.backend);
    share_parameters();
    optim::AdamW::Progress progress{state_.optimizer_steps, 1, 0, 0};
    if (description_.precision.compute == config::Precision::fp16) {
        const bool was = stored_.precision.compute == config::Precision::fp16;
        progress.loss_scale = was ? state_.loss_scale : description_.precision.loss_scale.initial;
        progress.good_steps = was ? state_.good_steps : 0;
        progress.bad_steps = was ? state_.bad_steps : 0;
    }
    optimizer_->set_progress(progress);
    saved_step_ = state_.step;
    log::info("resumed from {} at step {}", path, state_.step);
    cluster::on_root(*control_group_, [&] {
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
    compare(stored_.batch.micro, plan_.micro, "sequences a micro-batch");
    for (const auto& difference : config::differences(resolved(), stored_, "parallel"))
        if (!difference.starts_with("parallel.data"))  // ranks and the other axes say it
            differences += (differences.empty() ? "" : ", ") + difference;
    if (!differences.empty())
        log::warning("this resume will not repeat an uninterrupted run bit for bit: {}", differences);
    if (state_.data_checksum != training_data_->checksum() || state_.length != description_.batch.length ||
        state_.seed != description_.run.seed)
        log::warning(
            "the data, batch.length or run.seed is another than the checkpoint's: from here on the samples are others, "
            "and some may be seen again");
}

// The tensors of two models may agree in name and shape and still mean other things (heads, rotation, epsilon).
void Trainer::check_same_model() const {
    config::RunDescription before = stored_;
    // What changes no number of the forward pass: a preset's name, what is trained, and the context where positions are
    // not learned.
    before.model.preset = description_.model.preset;
    before.model.frozen = description_.model.frozen;
    if (description_.model.position != config::Position::learned) before.model.context = description_.model.context;
    const std::vector<std::string> list = config::differences(description_, before, "model");
    if (!list.empty())
        throw usage_error("{} is a checkpoint of another model: {}; give the run description it was made with",
                          resume_path_, fmt::format("{}", fmt::join(list, "; ")));
}

void Trainer::say_differences() const {
    std::vector<std::string> list;
    for (const char* section : {"batch", "optimizer", "schedule", "precision"})  // parallel: see restore()
        for (const auto& difference : config::differences(resolved(), stored_, section))
            if (!difference.starts_with("batch.micro")) list.push_back(difference);
    if (!list.empty()) log::warning("changed since the checkpoint: {}", fmt::join(list, "; "));
}

}  // namespace lockstep::train
