// How a launch begins: its devices, process grid, data and folders, and the decision what to resume. All of it is
// opened and checked before anything of the model is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "calibrate/self_test.hpp"
#include "cluster/process_grid.hpp"
#include "cluster/session.hpp"
#include "config/run_description.hpp"
#include "layout/devices.hpp"
#include "layout/memory_plan.hpp"
#include "train/resume.hpp"
#include "train/run_data.hpp"
#include "train/supervision.hpp"
#include "watch/run_folder.hpp"

namespace lockstep::train {

struct TrainOptions {
    bool resume_newest = false;     // from the newest whole checkpoint of the run, if there is one …
    std::string resume_file;        // … or from this one; "": a fresh start
    std::int64_t stop_at = 0;       // > 0: stop with a checkpoint after this step
    double stop_after_minutes = 0;  // > 0: stop with a checkpoint after so long
    std::string witness_program;    // this program, started once a node to say which rank died; "": none
};

struct Folders {
    std::string run_path, checkpoint_path;
    std::unique_ptr<watch::RunFolder> run;            // rank 0
    std::unique_ptr<watch::RunLock> checkpoint_lock;  // rank 0

    // status.json, on rank 0; elsewhere nothing.
    void write_status(const std::string& state, std::int64_t step, ExitCode code, const std::string& reason) const;
};

struct Launch {
    cluster::Session& session;
    config::RunDescription description;
    TrainOptions options;
    double started;                               // of seconds_now()
    std::unique_ptr<cluster::HostGroup> control;  // of all ranks, for messages between hosts
    Folders folders{};
    std::unique_ptr<Supervision> supervision{};
    layout::Devices devices{};
    config::Grid grid{};
    cluster::ProcessGroups groups{};
    layout::MemoryPlan plan{};  // and what this rank has of the model and of a batch
    RunData data{};
    Resume resume{};
    calibrate::FolderTest folder_test{};  // of the self-test

    bool root() const { return session.rank() == 0; }
    config::RunDescription resolved() const;  // the description with what was chosen for this launch
};

// Collective. Takes the run's folder. Where the checkpoint to resume is already at the schedule's end, nothing is
// watched and no log is written.
Launch open_launch(cluster::Session& session, config::RunDescription description, const TrainOptions& options);

}  // namespace lockstep::train
