// A model read from a checkpoint, for evaluation and generation.
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

// Collective. The model computes in fp32, whatever it was trained in.
ModelFile load_model(const std::string& checkpoint, kernels::Backend& backend, cluster::HostGroup& group);

// The factor on the inner learning rate of TTT at the step of the checkpoint.
double inner_rate_factor(const ModelFile& file);

}  // namespace lockstep::train
