// Start of a launch: devices, process grid, data and folders, and the decision what to resume. Everything is opened and
// checked before the model is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "calibrate/self_test.hpp"
#include "checkpoint/courses.hpp"
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
    bool resume_newest = false;     // from the run's newest undamaged checkpoint, if any
    std::string resume_file;        // or from this file; "": a fresh start
    std::int64_t stop_at = 0;       // > 0: stop with a checkpoint after this step
    double stop_after_minutes = 0;  // > 0: stop with a checkpoint after this time
    std::string witness_program;    // this executable, started once per node to report which rank died; "": none
};

struct Folders {
    std::string run_path, checkpoint_path;
    std::unique_ptr<watch::RunFolder> run;            // rank 0
    std::unique_ptr<watch::RunLock> checkpoint_lock;  // rank 0

    // status.json, on rank 0; elsewhere a no-op.
    void write_status(const std::string& state, std::int64_t step, ExitCode code, const std::string& reason) const;
};

struct Launch {
    cluster::Session& session;
    config::RunDescription description;
    TrainOptions options;
    double started;                               // seconds_now()
    std::unique_ptr<cluster::HostGroup> control;  // all ranks, for host messages
    Folders folders{};
    std::unique_ptr<Supervision> supervision{};
    layout::Devices devices{};
    config::Grid grid{};
    cluster::ProcessGroups groups{};
    layout::MemoryPlan plan{};  // of this rank
    RunData data{};
    Resume resume{};
    std::vector<checkpoint::Course> local_courses{};  // the last one is this launch's; none: without local checkpoints
    calibrate::FolderTest folder_test{};              // of the self-test

    bool root() const { return session.rank() == 0; }
    // The kind of processor, and that of the CPU too where it updates: results repeat bit for bit on the same only.
    std::string computes_on() const;
    config::RunDescription resolved() const;  // the description with all choices of this launch
};

// Collective. Claims the run folder. If the checkpoint to resume is already at the schedule's end, starts neither
// watchdog nor log.
Launch open_launch(cluster::Session& session, config::RunDescription description, const TrainOptions& options);

}  // namespace lockstep::train
