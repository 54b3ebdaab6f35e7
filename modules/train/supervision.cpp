#include "train/supervision.hpp"

#include <utility>

#include "base/log.hpp"
#include "train/launch.hpp"
#include "watch/watch_folder.hpp"
#include "watch/witness.hpp"

namespace lockstep::train {

Supervision::Supervision(const Launch& launch)
    : step_(std::make_shared<std::int64_t>(launch.resume.state.step)),
      node_folder_(std::make_unique<watch::NodeFolder>(*launch.control, launch.session.place())),
      run_path_(launch.folders.run_path),
      final_status_(make_final_status(launch)) {
    const auto& limits = launch.description.watchdog;
    watch::WatchOptions options;
    options.seconds = limits.seconds;
    options.first_step_seconds = limits.first_step_seconds;
    options.run_path = launch.folders.run_path;
    options.node_folder = node_folder_->path();
    options.key = node_folder_->key();
    options.rank = launch.session.rank();
    options.ranks = launch.session.size();
    options.node = launch.session.place().node;
    options.hosts = launch.session.place().hosts;
    options.write_final_status = final_status_;
    if (launch.folders.run) has_watch_folder_ = watch::make_watch_folder(options.run_path, options.key);
    launch.control->barrier();  // all ranks of the node are in its folder
    // In containers each rank may have its own node folder.
    const auto members = watch::node_members(options.node_folder);
    const bool first = !members.empty() && members.front().rank == options.rank;
    if (first && !launch.options.witness_program.empty())
        watch::start_witness(launch.options.witness_program, options.node_folder, options.run_path, options.key);
    watchdog_ = std::make_unique<watch::Watchdog>(std::move(options));
}

// Writes status.json and opens log.txt for the error that follows; false if another rank was first. Holds copies, since
// it may run after the launch is gone.
Supervision::FinalStatus Supervision::make_final_status(const Launch& launch) const {
    const bool has_log = launch.folders.run != nullptr;
    return [path = launch.folders.run_path, key = node_folder_->key(), step = step_, has_log](
               const std::string& state, ExitCode code, const std::string& sentence, const watch::NodeBlame& blame) {
        if (!watch::claim_final_status(path, key)) return false;
        watch::RunFolder::write_status(path, state, *step, static_cast<int>(code), sentence, blame);
        try {
            if (!has_log) log::add_file(path + "/log.txt");
        } catch (const Error& error) {
            log::debug("{}", error.what());
        }
        return true;
    };
}

bool Supervision::may_record() const {
    return !has_watch_folder_ || !watch::final_status_is_claimed(run_path_, node_folder_->key());
}

bool Supervision::may_record_end() const {
    return !has_watch_folder_ || watch::close_watch_folder(run_path_, node_folder_->key());
}

void Supervision::record_lost_connections(cluster::Session& session) const {
    session.set_failure_handler([write = final_status_](const Error& error) {
        if (error.is_connection_error()) static_cast<void>(write("lost", error.code(), error.what(), {}));
    });
}

void Supervision::record_failures(cluster::Session& session) const {
    session.set_failure_handler([write = final_status_](const Error& error) {
        static_cast<void>(write(watch::state_after(error), error.code(), error.what(), {}));
    });
}

}  // namespace lockstep::train
