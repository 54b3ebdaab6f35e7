// Loads a model for evaluation and generation, from a checkpoint or a folder in the Hugging Face layout.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "config/run_description.hpp"
#include "model/parameters.hpp"

namespace lockstep::train {

struct ModelFile {
    std::string path;  // of the checkpoint or folder
    checkpoint::Contents contents;
    config::RunDescription description;
    std::unique_ptr<model::ParameterSet> parameters;  // values only
};

// Collective. Computes in fp32, whatever the training precision. `name`: a checkpoint, or a run's folder or a folder of
// checkpoints, of which the newest is taken, or a folder in the Hugging Face layout. `averages`: the averages of
// optimizer.ema instead of the parameters. `base`: likewise a name, of the model that adapters alone belong to; "":
// the one that their checkpoint names.
ModelFile load_model(const std::string& name, kernels::Backend& backend, cluster::HostGroup& group, bool averages,
                     const std::string& base);

// The factor on TTT's inner learning rate at the checkpoint's step.
double inner_rate_factor(const ModelFile& file);

}  // namespace lockstep::train
