// Which checkpoint a launch resumes from, whether it may, and what is loaded from it.
#pragma once

#include <string>

#include "checkpoint/checkpoint.hpp"
#include "config/run_description.hpp"

namespace lockstep::train {

struct Launch;
struct TrainingState;

struct Resume {
    std::string path;                    // of the checkpoint; "": a fresh start
    checkpoint::State state;             // as it was saved
    config::RunDescription description;  // it was made with
    bool complete = false;               // it is at the end of the schedule
};

// Collective; needs the data and the folders. Usage error for a checkpoint of another model, for a run that has
// checkpoints but is not resumed, and for a named checkpoint after which nothing is left to train.
Resume choose_checkpoint(const Launch& launch);

// Collective. Fills parameters, optimizer and counters from launch.resume; sets later checkpoints aside; warns where
// the resumed run will not repeat an uninterrupted one bit for bit.
void restore(const Launch& launch, TrainingState& state);

}  // namespace lockstep::train
