// A model out of a checkpoint, for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "config/run_description.hpp"
#include "model/parameters.hpp"

namespace lockstep::train {

struct ModelFile {
    checkpoint::Contents contents;
    config::RunDescription description;
    std::unique_ptr<model::ParameterSet> parameters;  // values only
};

// Collective.
ModelFile load_model(const std::string& checkpoint, cluster::Communicator& communicator);

// The factor on the inner learning rate of TTT at the step of the checkpoint.
double inner_rate_factor(const ModelFile& file);

// What a checkpoint calls the tensors of a stage: "parameters/<name>".
std::vector<checkpoint::Entry> parameter_entries(const model::ParameterSet& parameters);

}  // namespace lockstep::train
