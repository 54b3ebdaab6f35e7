#include "train/local_checkpoints.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/agree.hpp"
#include "cluster/nodes.hpp"
#include "train/checkpoint_contents.hpp"

namespace lockstep::train {
namespace {

using checkpoint::Course;
using WriterProgress = checkpoint::Writer::Progress;

// Rank 0's, on every rank.
std::vector<Course> shared_courses(const Launch& launch, const std::vector<Course>& courses) {
    const std::string text = launch.control->broadcast_text(checkpoint::courses_to_text(courses), 0);
    return checkpoint::courses_from_text(text, checkpoint::courses_path(launch.folders.checkpoint_path));
}

// "": the folder can be written to.
std::string problem_with(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return fmt::format("cannot create the folder: {}", error.message());
    return ::access(folder.c_str(), W_OK | X_OK) == 0 ? "" : system_error_text();
}

// Collective. A folder that no rank can write to is a mistake of the run's, so a fresh start is refused; a broken disk
// stops nothing.
void check_folder(const Launch& launch, const std::string& folder) {
    const std::string problem = problem_with(folder);
    cluster::HostGroup& all = *launch.control;
    const auto failed = static_cast<std::int64_t>(all.all_sum(problem.empty() ? 0 : 1));
    if (failed == 0) return;
    const std::int64_t last = all.all_maximum(problem.empty() ? -1 : all.rank());
    if (failed == all.size() && launch.resume.path.empty())
        throw usage_error("checkpoint.local = \"{}\": {}; name a folder that every node can write to",
                          launch.description.checkpoint.local, problem);
    if (all.rank() == last)
        log::warning("local checkpoints cannot be written to {} on {} of {} ranks, including this one on {}: {}",
                     folder, failed, all.size(), launch.session.place().host, problem);
}

}  // namespace

checkpoint::LocalPlace local_place(const Launch& launch) {
    return {config::local_folder(launch.description), cluster::number_nodes(launch.session.place().hosts),
            launch.description.checkpoint.partner};
}

std::vector<checkpoint::PartSet> find_local_checkpoints(const Launch& launch) {
    if (launch.description.checkpoint.local.empty()) return {};
    std::vector<Course> courses;
    cluster::on_root(*launch.control, [&] { courses = checkpoint::read_courses(launch.folders.checkpoint_path); });
    courses = shared_courses(launch, courses);
    return checkpoint::find_local(local_place(launch), courses, *launch.control);
}

bool wrote_local_checkpoints(const Launch& launch) {
    return !checkpoint::read_courses(launch.folders.checkpoint_path).empty();
}

std::vector<Course> begin_local_course(const Launch& launch) {
    const bool writes = launch.description.checkpoint.writes_local();
    if (writes) check_folder(launch, config::local_folder(launch.description));
    const std::string& folder = launch.folders.checkpoint_path;
    std::vector<Course> courses;
    cluster::on_root(*launch.control, [&] {
        courses = checkpoint::read_courses(folder);
        // Also without local checkpoints: those of an earlier launch after this step are no longer of this course.
        if (writes || !courses.empty())
            courses = checkpoint::begin_course(folder, std::move(courses), launch.resume.state.step);
    });
    return shared_courses(launch, courses);
}

LocalCheckpoints::LocalCheckpoints(const Launch& launch, const TrainingState& state, trace::Tracer& tracer,
                                   trace::RegionId region)
    : launch_(launch), state_(state), tracer_(tracer), region_(region) {
    const bool writes = launch.description.checkpoint.writes_local();
    if (launch.root() && !writes && !launch.description.checkpoint.local.empty())
        log::warning("checkpoint.local_every = 0: no local checkpoints are written; those in {} are only read",
                     config::local_folder(launch.description));
    if (!writes) return;
    const checkpoint::LocalPlace place = local_place(launch);
    if (launch.root() && place.partner && cluster::ranks_of_nodes(place.nodes).size() == 1)
        log::info("all ranks are on one node: local checkpoints in {} have no copies on another node", place.folder);
    std::vector<std::int64_t> complete;
    const std::int64_t first = launch.resume.state.step;
    for (const checkpoint::PartSet& set : launch.resume.local_sets)
        if (set.step <= first && (complete.empty() || complete.back() != set.step)) complete.push_back(set.step);
    std::reverse(complete.begin(), complete.end());
    writer_.emplace(place, launch.local_courses, std::move(complete),
                    launch.session.make_world_group("local checkpoint"));
}

bool LocalCheckpoints::due(std::int64_t step) const {
    return writer_ && step % launch_.description.checkpoint.local_every == 0;
}

bool LocalCheckpoints::writing() const {
    return writer_ && writer_->progress() == WriterProgress::writing;
}

bool LocalCheckpoints::pending() const {
    return writer_ && writer_->progress() != WriterProgress::idle;
}

void LocalCheckpoints::save(std::int64_t step) {
    if (pending()) commit();
    const trace::Scope timed(tracer_, region_);
    step_ = step;
    static_cast<void>(writer_->begin(checkpoint_contents(launch_, state_, step), saved_entries(launch_, state_)));
}

void LocalCheckpoints::commit() {
    const trace::Scope timed(tracer_, region_, trace::Call::continues);
    if (!writer_->commit()) return;
    const checkpoint::Writer::Cost& cost = writer_->cost();
    const auto bytes = static_cast<double>(cost.bytes);
    const std::string line =
        fmt::format("local checkpoint of step {}: {} in {}, {}; training paused {}", step_, human_bytes(bytes),
                    human_seconds(cost.seconds), human_rate(bytes / std::max(cost.seconds, 1e-9), "B"),
                    human_seconds(cost.blocked_seconds));
    // They are frequent: the first says what they take, log.txt has all.
    log::write(std::exchange(told_, true) ? log::Level::detail : log::Level::info, line);
}

void LocalCheckpoints::make_room(std::int64_t shared_step) {
    if (writer_) writer_->make_room(shared_step);
}

void LocalCheckpoints::remove_all() {
    if (writer_) writer_->remove_all();
}

}  // namespace lockstep::train
