// Which checkpoint a launch resumes from, whether it may, and what it loads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/local.hpp"
#include "config/run_description.hpp"

namespace lockstep::train {

struct Launch;
struct TrainingState;

struct Resume {
    std::string path;                                  // of the checkpoint; "": a fresh start
    std::optional<checkpoint::LocalCheckpoint> local;  // that is it
    std::vector<checkpoint::PartSet> local_sets;       // what is left of those written so far, newest first
    checkpoint::State state;
    config::RunDescription description;  // of the run that wrote it
    bool complete = false;               // at the end of the schedule
};

// Collective. Usage error for a named checkpoint that is not there, before a folder or lock is made.
void check_resume_file(const Launch& launch);

// Collective; needs data and folders. Usage error for another model's checkpoint, for a run that has checkpoints but is
// not resumed, and for a named checkpoint with nothing left to train.
Resume choose_checkpoint(const Launch& launch);

// What makes two models different, one text each; empty where one's parameters fit the other. Tensors of two models may
// agree in name and shape and still differ in meaning (heads, rotation, epsilon).
std::vector<std::string> model_differences(const config::RunDescription& now, config::RunDescription before);

// Collective. Fills parameters, optimizer and counters from launch.resume; warns if the resumed run will not be
// bit-identical to an uninterrupted one.
void restore(const Launch& launch, TrainingState& state);

// Collective. Of a launch that resumes: later checkpoints are renamed.
void set_aside_later(const Launch& launch);

}  // namespace lockstep::train
