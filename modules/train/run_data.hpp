// A launch's training and validation data, and the resulting number of steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cluster/host_group.hpp"
#include "config/run_description.hpp"
#include "data/dataset.hpp"

namespace lockstep::train {

struct RunData {
    std::optional<data::Dataset> training, validation;
    std::int64_t steps = 0;  // of the whole schedule
    // Of the training data, which checkpoints keep: as the data names it or, for .bin files, the run; "": not known.
    std::string tokenizer_kind{};
    data::TokenizerFiles tokenizer_files{};
};

// Collective. Usage error if the data does not fit the model or the schedule, or if ranks see different data.
RunData open_run_data(const config::RunDescription& description, cluster::HostGroup& control);

// Collective. Usage error if ranks see different data, as where a path means different files on different nodes.
void check_same_on_all_ranks(const data::Dataset& data, const std::string& key, cluster::HostGroup& group);

}  // namespace lockstep::train
